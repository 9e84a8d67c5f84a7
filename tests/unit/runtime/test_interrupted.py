"""An interrupted run ends what it began, and does not stay for ever to do so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl.model.stream import Scope
from noetl.runtime.commands import run
from noetl.runtime.commands.run import cancelled_if_interrupted

HOME = Scope("default", "default")


class Cancelling:
    """An engine that is asked to cancel, and comes to an end with it or not."""

    def __init__(self, *, ends: bool) -> None:
        self.asked: list[tuple[int, str]] = []
        self._ended = asyncio.Event()
        if ends:
            self._ended.set()

    async def cancel(self, scope: Scope, execution_id: int, *, reason: str, by: str) -> list[int]:
        self.asked.append((execution_id, reason))
        await self._ended.wait()
        return [execution_id]


@pytest.mark.parametrize("ends", [True, False])
async def test_what_was_begun_is_cancelled_within_a_bound(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "INTERRUPTED_SECONDS", 0.05)
    engine: Any = Cancelling(ends=ends)
    entered = asyncio.Event()

    async def running() -> None:
        async with cancelled_if_interrupted(engine, HOME, 7):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(running())
    await entered.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done
    assert task.cancelled()
    assert engine.asked == [(7, "interrupted")]


async def test_a_run_that_ends_by_itself_is_not_cancelled() -> None:
    engine: Any = Cancelling(ends=True)
    async with cancelled_if_interrupted(engine, HOME, 7):
        pass
    assert engine.asked == []
