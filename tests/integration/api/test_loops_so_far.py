"""Rows of frames that are not committed yet: shown to people from hints, beside the sums of the ledger and never in them. INV-130."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.api.serving import HOME, LOOP, Server

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport, FrameSoFar
from noetl.engine.dispatch.loops.progress import LoopsSoFar
from noetl.engine.dispatch.open_work.postgres import PostgresOpenWork
from noetl.engine.dispatch.remote import RemoteDispatch
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.hints import MemoryHints
from noetl.model.stream import Scope
from noetl.testing.engines.short_leases import until


@pytest.fixture
async def dispatch(server: Server) -> AsyncIterator[RemoteDispatch]:
    """A worker's way to the server."""
    remote = RemoteDispatch(server.url, patience_seconds=5.0)
    yield remote
    await remote.close()


@pytest.fixture
async def hints(engine: Engine) -> AsyncIterator[MemoryHints]:
    """Hints that the server's engine writes to."""
    found = engine.so_far.hints = MemoryHints()
    writing = asyncio.create_task(engine.so_far.run())
    yield found
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def in_hand(server: Server, dispatch: RemoteDispatch) -> tuple[CommandGrant, FrameGrant]:
    """Start a loop of five rows and take its first frame, which has two."""
    await server.register(LOOP)
    await server.start("tests/loop")
    (slot,) = await dispatch.claim("w1", 1, 5.0)
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    return slot, frame


def said(frame: FrameGrant, done: int, failed: int = 0, **other: Any) -> FrameSoFar:
    """Say how far a frame is."""
    whose = {"stage_id": frame.stage_id, "frame_id": frame.frame_id, "attempt": frame.attempt}
    return FrameSoFar(rows_done=done, rows_failed=failed, rows_per_second=2.5, **whose | other)


async def stage(server: Server, frame: FrameGrant) -> dict[str, Any]:
    """Return what is shown of a frame's stage."""
    shown: dict[str, Any] = await server.call("GET", f"/api/stages/{frame.stage_id}", status=200)
    return shown


async def shown_so_far(server: Server, frame: FrameGrant) -> dict[str, Any]:
    """Wait until something is shown: what is told is written down beside the work."""
    found: dict[str, Any] = await until(lambda: _so_far(server, frame), "rows so far", within=10)
    return found


async def _so_far(server: Server, frame: FrameGrant) -> Any:
    return (await stage(server, frame))["so_far"]


@pytest.mark.usefixtures("hints")
async def test_rows_in_hand_are_shown_until_their_frame_is_committed(server: Server, dispatch: RemoteDispatch) -> None:
    slot, frame = await in_hand(server, dispatch)
    assert (await stage(server, frame))["so_far"] is None
    assert await dispatch.lost([slot.lease, frame.lease], [said(frame, 1)]) == []
    assert await shown_so_far(server, frame) == {"rows_done": 1, "rows_failed": 0, "rows_per_second": 2.5}
    assert (await stage(server, frame))["rows_done"] == 0, "what counts is what is committed"

    report = FrameReport(row_count=2, failed_count=1)
    following = await dispatch.commit_frame(slot, frame, report, worker="w1", take_next=True)
    assert following is not None
    now = await stage(server, frame)
    assert (now["rows_done"], now["rows_failed"], now["so_far"]) == (1, 1, None), "no row counts twice"
    await dispatch.lost([slot.lease], [said(following, 2)])
    assert await shown_so_far(server, frame) == {"rows_done": 3, "rows_failed": 1, "rows_per_second": 2.5}


async def test_what_vanishes_is_not_shown_and_comes_back_when_it_is_told_again(
    server: Server, dispatch: RemoteDispatch, hints: MemoryHints
) -> None:
    slot, frame = await in_hand(server, dispatch)
    await dispatch.lost([slot.lease], [said(frame, 1)])
    await shown_so_far(server, frame)
    hints.wipe()
    assert (await stage(server, frame))["so_far"] is None
    await dispatch.lost([slot.lease], [said(frame, 2)])
    assert (await shown_so_far(server, frame))["rows_done"] == 2


async def test_without_hints_nothing_is_kept(server: Server, dispatch: RemoteDispatch, engine: Engine) -> None:
    slot, frame = await in_hand(server, dispatch)
    assert await dispatch.lost([slot.lease], [said(frame, 1)]) == []
    hints = engine.so_far.hints = MemoryHints()
    writing = asyncio.create_task(engine.so_far.run())
    await dispatch.lost([slot.lease], [said(frame, 0, frame_id=7)])
    await until(lambda: hints.get(f"loops/default/default/{frame.stage_id}"), "a note")
    assert (await stage(server, frame))["so_far"] is None, "the first word was dropped, and nobody has frame 7"
    writing.cancel()


async def test_only_who_has_the_frame_counts_and_never_more_rows_than_it_has(
    server: Server, dispatch: RemoteDispatch, engine: Engine, hints: MemoryHints, database: Database
) -> None:
    _, frame = await in_hand(server, dispatch)
    elsewhere = LoopsSoFar(PostgresOpenWork(database), hints)
    writing = asyncio.create_task(elsewhere.run())
    elsewhere.tell(Scope("default", "other"), [said(frame, 1)])
    elsewhere.tell(HOME, [said(frame, 1, attempt=frame.attempt + 1), said(frame, 1, frame_id=7)])
    await until(lambda: hints.get(f"loops/default/default/{frame.stage_id}"), "a note")
    assert (await stage(server, frame))["so_far"] is None

    # Two processes share a note: neither writes over what the other one said.
    engine.so_far.tell(HOME, [said(frame, 50, 1)])
    assert await shown_so_far(server, frame) == {"rows_done": 1, "rows_failed": 1, "rows_per_second": 2.5}
    note = await hints.get(f"loops/default/default/{frame.stage_id}")
    assert note is not None
    assert b'"frame_id":7' in note
    await hints.put(f"loops/default/default/{frame.stage_id}", b"no note")
    assert (await stage(server, frame))["so_far"] is None
    writing.cancel()
