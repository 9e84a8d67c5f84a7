"""Warm child interpreters of a worker: code and input go in, what became of them comes out. Never more children than allowed.

A child serves one organization alone, and is replaced after many calls, or when a call left it in doubt.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import orjson
from jinja2 import Undefined

from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Held
from noetl.engine.tools.programs.process import Printed
from noetl.engine.tools.python.process import Child, ProcessDied
from noetl.language.templates.result_view import View, alone

_REMEMBERED_CODES = 4_096
_LARGE = 1024 * 1024
_SECRETS = "keychain"
_NOTHING = Printed("", truncated=False)


class Variant(msgspec.Struct, frozen=True):
    """What children must have in common to stand in for each other."""

    owner: Any
    executable: str
    memory_mb: int
    sys_path: tuple[str, ...] = ()


class Request(NamedTuple):
    """Code to run, with its input and the scope it may ask for names of."""

    digest: str
    code: str
    input: Mapping[str, Any]
    scope: Mapping[str, Any]
    execution_id: str = ""


class Answer(NamedTuple):
    """What became of a request; `body` is the child's own message when it answered, `exit_code` is set when it died."""

    how: Literal["answered", "died", "timeout", "no_child"]
    stdout: Printed
    stderr: Printed
    body: Mapping[str, Any] = MappingProxyType({})
    exit_code: int | None = None


class PythonPool:
    """Runs requests in child interpreters, as many at once as there may be children."""

    def __init__(self, size: int, calls_per_child: int) -> None:
        self._size = size
        self._calls_per_child = calls_per_child
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[Variant, Child]] = []
        self._busy: set[Child] = set()
        self._running = 0
        self._wanted: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._closed = False

    async def run(self, variant: Variant, request: Request, timeout: float | None) -> Answer:
        """Run a request in a child of the variant; a child that is too slow, or whose caller leaves, is killed.

        Raises ValueError for input that is not plain, and OSError when no child can be started.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            return Answer("no_child", _NOTHING, _NOTHING)
        self._running += 1
        try:
            child = await self._take(variant)
            self._busy.add(child)
            return await self._run(child, variant, request, deadline)
        finally:
            self._running -= 1
            self._slots.release()

    async def _run(self, child: Child, variant: Variant, request: Request, deadline: float | None) -> Answer:
        late = reusable = False

        def interrupt() -> None:
            nonlocal late
            late = True
            child.interrupt()

        timer = None if deadline is None else asyncio.get_running_loop().call_at(deadline, interrupt)
        try:
            body = await self._talk(child, request)
            stdout, stderr = child.printed()
            child.calls += 1
            wanted = child.calls < self._calls_per_child and not (late or self._closed)
            reusable = wanted and body.get("spent") is False
            return Answer("answered", stdout, stderr, body)
        except (ProcessDied, orjson.JSONDecodeError):
            stdout, stderr = child.printed()
            # The timer itself says so: a clock that is asked instead may not have come to the deadline when it fires.
            code = await child.kill() if late else await child.died()
            return Answer("timeout" if late else "died", stdout, stderr, exit_code=code)
        finally:
            if timer is not None:
                timer.cancel()
            self._busy.discard(child)
            if reusable:
                self._idle.append((variant, child))
            else:
                await child.kill()

    async def _talk(self, child: Child, request: Request) -> dict[str, Any]:
        looked_up = self._wanted.get(request.digest, ())
        message = {
            "digest": request.digest,
            "code": None if request.digest in child.sent else request.code,
            "input": _given(request.input),
            "execution_id": request.execution_id,
            "scope": await _values(request.scope, looked_up),
            "looked_up": looked_up,
        }
        body = await _decoded(await child.ask(orjson.dumps(message)))
        while "wanted" in body:
            body = await _decoded(await child.ask(orjson.dumps(await self._found(request, body))))
        if "result" in body:
            child.sent.add(request.digest)
        return body

    async def _found(self, request: Request, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a child asks for: values by name, or which names there are, without that of the secrets."""
        if body["wanted"] is None:
            return {"names": [name for name in request.scope if name != _SECRETS and not name.startswith("__")]}
        wanted = tuple(map(str, body["wanted"]))
        if not body.get("once"):
            self._wanted[request.digest] = wanted
            while len(self._wanted) > _REMEMBERED_CODES:
                self._wanted.popitem(last=False)
        return await _values(request.scope, wanted)

    async def _take(self, variant: Variant) -> Child:
        for at in range(len(self._idle) - 1, -1, -1):
            if self._idle[at][0] == variant:
                child = self._idle.pop(at)[1]
                if child.alive:
                    return child
                await child.kill()
                break
        while self._idle and len(self._idle) + self._running > self._size:
            await self._idle.pop(0)[1].kill()
        return Child(variant.executable, variant.memory_mb, variant.sys_path)

    async def aclose(self) -> None:
        """End all children."""
        self._closed = True
        children = [*self._busy, *(child for _, child in self._idle)]
        self._idle.clear()
        await asyncio.gather(*(child.kill() for child in children))


async def _values(scope: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: scope[name] for name in names if name in scope}
    return {
        name: _told(await value.whole() if isinstance(value, Held) else value)
        for name, value in found.items()
        if not isinstance(value, Undefined)
    }


def _given(given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return bindings as `_told`; what cannot be passed is named by its place among them."""
    values = plain({name: alone(value) for name, value in given.items()})
    return {name: (value, _beside(was)) for (name, value), was in zip(values.items(), given.values(), strict=True)}


def _told(value: Any) -> tuple[Any, Any]:
    """Return a value in plain JSON values, and what stands beside it by name if it is a result."""
    return plain(alone(value)), _beside(value)


def _beside(value: Any) -> Any:
    if not isinstance(value, View):
        return None
    return plain({name: part for name, part in {**value.beside, **value.before}.items() if name != "data"})


async def _decoded(answer: bytes) -> dict[str, Any]:
    body = orjson.loads(answer) if len(answer) < _LARGE else await asyncio.to_thread(orjson.loads, answer)
    return body if isinstance(body, dict) else {}
