"""How far loops are beyond what is committed: what workers say of frames in hand goes in, rows so far come out for people.

It is kept in hints and nowhere else, dropped when they are away, and counts only for frames that the database says are in the
same hands still. Nothing is decided by it, and no work waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from noetl.engine.dispatch.grants import FrameSoFar
from noetl.engine.dispatch.open_work.port import OpenWork
from noetl.kernel.stream.hints import Hints
from noetl.model.stream import Scope

EVERY_SECONDS: Final = 1.0
"""How often the note of a stage is written, at most."""
_KEPT_SECONDS: Final = 60.0
"""How long a frame stays in the note that nobody speaks of any more."""


class SoFarView(msgspec.Struct, kw_only=True):
    """What workers say came of a stage's rows up to now, those of frames included that are not committed yet."""

    rows_done: int
    rows_failed: int
    rows_per_second: float
    """How quickly rows of such frames are worked off."""


class StageSoFar(SoFarView, kw_only=True):
    """What came of the rows of one stage, committed or not."""

    stage_id: int
    loop_id: int | None


class _Said(msgspec.Struct, array_like=True):
    """A frame in the note of its stage."""

    frame: FrameSoFar
    at: float


_NOTE = msgspec.json.Decoder(list[_Said])


class LoopsSoFar:
    """Notes about the loops that the workers of this process are at, and about those of others."""

    def __init__(self, work: OpenWork, hints: Hints | None = None, clock: Callable[[], float] = time.time) -> None:
        self.hints = hints
        """Where notes are kept; None keeps none."""
        self._work = work
        self._clock = clock
        self._told: dict[tuple[Scope, int], dict[int, FrameSoFar]] = {}
        self._news = asyncio.Event()

    def tell(self, scope: Scope, frames: Sequence[FrameSoFar]) -> None:
        """Take note of frames in hand; they are written down a little later, or not at all."""
        if self.hints is None:
            return
        for frame in frames:
            self._told.setdefault((scope, frame.stage_id), {})[frame.frame_id] = frame
            self._news.set()

    async def run(self) -> None:
        """Write down what is told, once a second, until cancelled."""
        while self.hints is not None:
            await self._news.wait()
            self._news.clear()
            told, self._told = self._told, {}
            for (scope, stage_id), frames in told.items():
                await self.hints.change(_key(scope, stage_id), partial(_noted, frames, self._clock()))
            await asyncio.sleep(EVERY_SECONDS)

    async def of(self, scope: Scope, execution_id: int) -> list[StageSoFar]:
        """Return the stages of an execution of which more is known than what is committed; none without hints."""
        if self.hints is None:
            return []
        frames = await self._work.frames_in_hand(scope, execution_id)
        notes = {stage: await self._note(self.hints, scope, stage) for stage in {frame.stage_id for frame in frames}}
        found: dict[int, StageSoFar] = {}
        for frame in frames:
            said = notes[frame.stage_id].get((frame.frame_id, frame.attempt))
            if said is None:
                continue
            stage = found.setdefault(
                frame.stage_id,
                StageSoFar(
                    stage_id=frame.stage_id,
                    loop_id=frame.loop_id,
                    rows_done=frame.rows_done,
                    rows_failed=frame.rows_failed,
                    rows_per_second=0.0,
                ),
            )
            failed = min(said.rows_failed, frame.row_count)
            stage.rows_failed += failed
            stage.rows_done += min(said.rows_done, frame.row_count - failed)
            stage.rows_per_second = round(stage.rows_per_second + said.rows_per_second, 1)
        return list(found.values())

    async def _note(self, hints: Hints, scope: Scope, stage_id: int) -> dict[tuple[int, int], FrameSoFar]:
        said = _read(await hints.get(_key(scope, stage_id)))
        return {(one.frame.frame_id, one.frame.attempt): one.frame for one in said}


def _key(scope: Scope, stage_id: int) -> str:
    return f"loops/{scope.tenant_id}/{scope.organization_id}/{stage_id}"


def _noted(frames: dict[int, FrameSoFar], now: float, before: bytes | None) -> bytes:
    """Put frames into a note beside those that other processes spoke of lately."""
    others = [one for one in _read(before) if one.frame.frame_id not in frames and one.at > now - _KEPT_SECONDS]
    return msgspec.json.encode([*others, *(_Said(frame, now) for frame in frames.values())])


def _read(note: bytes | None) -> list[_Said]:
    """Read a note; what is none says nothing."""
    try:
        return [] if note is None else _NOTE.decode(note)
    except msgspec.DecodeError:
        return []
