"""Recorded facts in memory: the events of a ledger, looked through one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from noetl.engine.dispatch.facts.port import FrameEnd, FrameFailure, IssuedCommand
from noetl.errors import NotFound
from noetl.kernel.ledger.payload_references import digest_at
from noetl.kernel.ledger.port import LedgerReader
from noetl.model.catalogue.rows import types_of_attempts
from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import SHARD_COUNT, Scope

_BEGUN: Final = types_of_attempts("begun", at="frame")
_FAILED: Final = types_of_attempts("failed", at="frame")
_LOST: Final = types_of_attempts("abandoned", "attempt_failed", at="command")
_ENDED: Final = types_of_attempts("completed", "failed", at="frame")


class MemoryFacts:
    """See `Facts` for the promises."""

    def __init__(self, ledger: LedgerReader) -> None:
        self._ledger = ledger

    async def issued(self, scope: Scope, execution_id: int, command_id: str) -> IssuedCommand | None:
        """Return what a command was issued with."""
        async for event in self._ledger.read_execution(scope, execution_id):
            if event.event_type == "command.issued" and event.command_id == command_id:
                return IssuedCommand(event.meta, event.context, event.fields_ref)
        return None

    async def taking_along(self, scope: Scope, parent_id: int, child_id: int) -> str | None:
        """Return the event by which an ended parent takes a child along."""
        detached: Any = None
        async for event in self._ledger.read_execution(scope, child_id):
            if event.event_type == "execution.requested":
                detached = event.meta.get("detached")
        async for event in self._ledger.read_execution(scope, parent_id):
            if event.event_type == "execution.cancelled" and event.meta.get("cascade") is None:
                return event.event_type
            if event.event_type in ("execution.failed", "playbook.failed") and detached is None:
                return event.event_type
        return None

    async def frame_ends(self, scope: Scope, execution_id: int, loop_id: int) -> list[FrameEnd]:
        """Return how the frames of a loop ended."""
        begun, ended = await self._frames(scope, execution_id, loop_id)
        found = []
        for event in ended:
            first = begun.get(event.frame_id)
            is_first = event.payload_ref is not None and event.meta.get("attempt") == 1
            found.append(
                FrameEnd(
                    frame_id=event.frame_id or 0,
                    first_index=_first_index(event, first),
                    payload_ref=event.payload_ref,
                    row_count=event.meta["row_count"],
                    worker=first.meta.get("worker") if first is not None and is_first else None,
                )
            )
        return sorted(found, key=_place)

    async def first_failure(self, scope: Scope, execution_id: int, loop_id: int) -> FrameFailure | None:
        """Return the first frame of a loop that failed or of which rows did."""
        begun, ended = await self._frames(scope, execution_id, loop_id)
        found = [
            FrameFailure(
                frame_id=event.frame_id or 0,
                first_index=_first_index(event, begun.get(event.frame_id)),
                row_count=event.meta.get("row_count"),
                result=event.result,
                error=event.error,
            )
            for event in ended
            if event.event_type in _FAILED
            or (event.event_type == "frame.committed" and event.meta.get("failed_count") is not None)
        ]
        return min(found, key=_place, default=None)

    async def losses(
        self, scope: Scope, execution_id: int, command_id: str, issued_event_id: int, loop_id: int | None
    ) -> int:
        """Return how many attempts came to nothing since the last frame."""
        stream_id, lost = f"execution/{execution_id}/command/{issued_event_id}", 0
        async for event in self._ledger.read_execution(scope, execution_id):
            if event.stream_id == stream_id and event.event_type in _LOST:
                lost += 1
            elif event.event_type in _ENDED and (event.loop_id, event.command_id) == (loop_id, command_id):
                lost = 0
        return lost

    async def execution_of(self, scope: Scope, idempotency_key: str) -> int | None:
        """Return the execution of the event that a key was first used for."""
        async for event in self._all(scope):
            if event.idempotency_key == idempotency_key:
                return event.execution_id
        return None

    async def payload_at(self, scope: Scope, locator: str) -> PayloadRef:
        """Return the reference a locator stands for."""
        sha256 = digest_at(scope, locator)
        async for event in self._all(scope):
            for ref in (event.payload_ref, event.fields_ref):
                if ref is not None and ref.sha256 == sha256:
                    return ref
        raise NotFound(f"no event refers to a payload {sha256}")

    async def _frames(
        self, scope: Scope, execution_id: int, loop_id: int
    ) -> tuple[dict[int | None, Event], list[Event]]:
        """Return the first event of each frame of a loop, and the ends of its frames."""
        begun: dict[int | None, Event] = {}
        ended: list[Event] = []
        async for event in self._ledger.read_execution(scope, execution_id):
            if event.loop_id != loop_id:
                continue
            if event.event_type in _BEGUN and event.stream_version == 1:
                begun[event.frame_id] = event
            elif event.event_type in _ENDED:
                ended.append(event)
        return begun, ended

    async def _all(self, scope: Scope) -> AsyncIterator[Event]:
        for shard in range(SHARD_COUNT):
            async for event in self._ledger.read_shard(shard, scope=scope):
                yield event


def _first_index(event: Event, begun: Event | None) -> int | None:
    if event.current_index is not None or begun is None:
        return event.current_index
    return begun.current_index


def _place(frame: FrameEnd | FrameFailure) -> tuple[bool, int, int]:
    return frame.first_index is None, frame.first_index or 0, frame.frame_id
