"""Resources that tools share: made once, failures forgotten, closed in reverse."""

from __future__ import annotations

import asyncio

import pytest

from noetl.engine.tools.resources import WorkerResources
from noetl.errors import Unavailable


class Closing:
    """A resource that notes when it is closed."""

    def __init__(self, name: str, closed: list[str], *, fails: bool = False) -> None:
        self.name = name
        self._closed = closed
        self._fails = fails

    async def aclose(self) -> None:
        self._closed.append(self.name)
        if self._fails:
            raise RuntimeError("cannot be closed")


class ClosingAtOnce:
    """A resource whose `close` is no coroutine."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def test_many_askers_at_once_get_one_resource() -> None:
    resources, made, go = WorkerResources(), list[object](), asyncio.Event()

    async def make() -> object:
        await go.wait()
        made.append(object())
        return made[-1]

    askers = [asyncio.ensure_future(resources.get(("pool", 1), make)) for _ in range(20)]
    await asyncio.sleep(0)
    go.set()
    assert {id(each) for each in await asyncio.gather(*askers)} == {id(made[0])}
    assert len(made) == 1
    await resources.aclose()


async def test_a_failed_make_reaches_all_who_wait_and_is_tried_anew() -> None:
    resources, tries, go = WorkerResources(), list[int](), asyncio.Event()

    async def make() -> str:
        tries.append(1)
        if len(tries) == 1:
            await go.wait()
            raise Unavailable("not now")
        return "made"

    askers = [asyncio.ensure_future(resources.get(("pool",), make)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    assert all(isinstance(each, Unavailable) for each in await asyncio.gather(*askers, return_exceptions=True))
    assert await resources.get(("pool",), make) == "made"
    assert len(tries) == 2
    await resources.aclose()


async def test_an_asker_that_leaves_does_not_take_the_resource_from_the_others() -> None:
    resources, go = WorkerResources(), asyncio.Event()

    async def make() -> str:
        await go.wait()
        return "made"

    first = asyncio.ensure_future(resources.get(("pool",), make))
    second = asyncio.ensure_future(resources.get(("pool",), make))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    assert await second == "made"
    await resources.aclose()


async def test_everything_is_closed_in_reverse_order_whatever_fails() -> None:
    resources, closed = WorkerResources(), list[str]()

    async def make(name: str) -> Closing:
        return Closing(name, closed, fails=name == "second")

    for name in ("first", "second", "third"):
        await resources.get((name,), lambda name=name: make(name))
    plainly = ClosingAtOnce()

    async def make_plainly() -> ClosingAtOnce:
        return plainly

    await resources.get(("plain",), make_plainly)
    await resources.aclose()
    assert plainly.is_closed
    assert closed == ["third", "second", "first"]
    await resources.aclose()
    assert closed == ["third", "second", "first"]


async def test_nothing_is_made_once_the_worker_is_closing() -> None:
    resources, started = WorkerResources(), asyncio.Event()

    async def never() -> None:
        started.set()
        await asyncio.Event().wait()

    asker = asyncio.ensure_future(resources.get(("slow",), never))
    await started.wait()
    await resources.aclose()
    with pytest.raises(Unavailable):
        await asker
    with pytest.raises(Unavailable):
        await resources.get(("slow",), never)
