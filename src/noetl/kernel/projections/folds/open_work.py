"""The rows of open work, folded: an execution's events go in, in their order, and the rows that must stand come out.

These are the rules of `noetl.apply_open_work`, told a second time so that each can be held against the other. What
heartbeats move (`lease_until`, `last_heartbeat`) is no fact, so it is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from noetl.kernel.projections.folds.fold import Row, copied, moment, text_of
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.dispatch import by_type
from noetl.model.catalogue.rows import types_applied_by, types_of_attempts
from noetl.model.event import Event

Table = dict[str, Row]
"""Rows by the id they have within their execution."""

_FAILED: Final = frozenset(types_of_attempts("failed", at="frame"))


class OpenWork:
    """The open rows of one execution. An execution the engine does not drive has none, and neither has an ended one."""

    def __init__(self) -> None:
        self.driven = False
        self.ended = False
        self.execution_head: Table = {}
        self.command: Table = {}
        self.stage: Table = {}
        self.frame: Table = {}

    def tables(self) -> dict[str, Table]:
        """Return the rows by the name of their table."""
        return {name: getattr(self, name) for name in ("execution_head", "command", "stage", "frame")}

    def apply(self, event: Event) -> None:
        """Change the rows as one event says; events that say nothing about open work change nothing."""
        if self.ended:
            return
        if not self.driven:
            self.driven = drives(event)
            if not self.driven:
                return
        change = _CHANGES[event.event_type]
        if change is not None:
            change(self, event)


def drives(event: Event) -> bool:
    """Tell whether this is the first event of an execution that the engine drives."""
    return (
        event.event_type == "execution.requested"
        and event.stream_version == 1
        and event.stream_id == f"execution/{event.execution_id}"
        and event.meta.get("playbook_digest") is not None
    )


def _requested(work: OpenWork, event: Event) -> None:
    execution_id, seconds = str(event.execution_id), event.meta.get("limit_seconds")
    work.execution_head[execution_id] = {
        "execution_id": execution_id,
        "parent_execution_id": text_of(event.parent_execution_id),
        "parent_command_id": event.meta.get("parent_command_id"),
        "catalog_id": event.catalog_id,
        "path": event.meta.get("path"),
        "requested_at": moment(event.event_time),
        "deadline": None if seconds is None else _later(event.event_time, seconds),
    }


def _execution_ended(work: OpenWork, _event: Event) -> None:
    work.ended = True
    for rows in work.tables().values():
        rows.clear()


def _issued(work: OpenWork, event: Event) -> None:
    meta, command_id = event.meta, event.command_id or ""
    child = meta.get("child_execution_id")
    worker = meta.get("worker")
    work.command[command_id] = {
        "execution_id": str(event.execution_id),
        "command_id": command_id,
        "step_name": event.node_name,
        "tool_kind": meta.get("tool_kind"),
        "status": "CLAIMED" if worker is not None else "PENDING" if child is None else "SUSPENDED",
        "attempt": _number(meta, "attempt"),
        "worker": worker,
        "lease_token": _token(meta),
        "lease_seconds": float(_number(meta, "lease_seconds")),
        "available_at": _available(event, 0),
        "stage_id": text_of(event.stage_id),
        "loop_id": text_of(event.loop_id),
        "child_execution_id": None if child is None else str(int(child)),
        "issued_event_id": str(event.event_id),
        "near": copied(meta.get("near")),
    }


def _claimed(work: OpenWork, event: Event) -> None:
    row = work.command.get(event.command_id or "")
    if row is not None:
        row |= {"status": "CLAIMED"} | _lease(event)


def _command_freed(work: OpenWork, event: Event) -> None:
    row = work.command.get(event.command_id or "")
    if row is not None:
        available_at = _available(event, _number(event.meta, "delay_seconds"))
        row |= {"status": "PENDING", "worker": None, "lease_token": None, "available_at": available_at}


def _command_ended(work: OpenWork, event: Event) -> None:
    work.command.pop(event.command_id or "", None)


def _opened(work: OpenWork, event: Event) -> None:
    counters = ("next_index", "frames_minted", "frames_open", "frames_failed", "rows_done", "rows_failed", "errors")
    work.stage[str(event.stage_id)] = {
        "execution_id": str(event.execution_id),
        "stage_id": str(event.stage_id),
        "loop_id": text_of(event.loop_id),
        "step_name": event.node_name,
        "kind": event.meta.get("kind"),
        "total_rows": event.meta.get("total_rows"),
        **dict.fromkeys(counters, 0),
        "ctx": {},
        "frame_policy": copied(event.context.get("frame_policy") or {}),
    }


def _closed(work: OpenWork, event: Event) -> None:
    stage_id = str(event.stage_id)
    work.stage.pop(stage_id, None)
    work.frame = {name: row for name, row in work.frame.items() if row["stage_id"] != stage_id}


def _dispatched(work: OpenWork, event: Event) -> None:
    meta, frame_id = event.meta, str(event.frame_id)
    if _number(meta, "attempt") > 1:
        row = work.frame.get(frame_id)
        if row is not None:
            row |= {"status": "LEASED", "command_id": event.command_id} | _lease(event)
        return
    stage = work.stage.get(str(event.stage_id))
    if stage is None:
        return  # it was closed meanwhile, so it hands out no lease
    first = event.current_index or 0
    stage["frames_minted"] += 1
    stage["frames_open"] += 1
    stage["next_index"] = max(stage["next_index"], first + _number(meta, "row_count"))
    work.frame[frame_id] = {
        "execution_id": str(event.execution_id),
        "frame_id": frame_id,
        "stage_id": str(event.stage_id),
        "loop_id": text_of(event.loop_id),
        "shard_id": event.shard_id,
        "status": "LEASED",
        "frame_index": meta.get("frame_index"),
        "first_index": first,
        "row_count": _number(meta, "row_count"),
        "command_id": event.command_id,
        "lease_seconds": float(_number(meta, "lease_seconds")),
        "input_ref": None if event.payload_ref is None else msgspec.to_builtins(event.payload_ref),
        "checkpoint": None,
    } | _lease(event)


def _frame_freed(work: OpenWork, event: Event) -> None:
    row = work.frame.get(str(event.frame_id))
    if row is not None:
        row |= {"status": "FREE", "worker": None, "command_id": None, "lease_token": None}


def _checkpointed(work: OpenWork, event: Event) -> None:
    row = work.frame.get(str(event.frame_id))
    if row is not None:
        row["checkpoint"] = copied(event.context.get("cursor"))


def _frame_ended(work: OpenWork, event: Event) -> None:
    work.frame.pop(str(event.frame_id), None)
    stage = work.stage.get(str(event.stage_id))
    if stage is None:
        return
    meta, failed = event.meta, event.event_type in _FAILED
    rows = _number(meta, "row_count")
    bad = rows if failed else _number(meta, "failed_count")
    stage["frames_open"] -= 1
    stage["frames_failed"] += failed
    stage["rows_done"] += rows - bad
    stage["rows_failed"] += bad
    stage["errors"] += _number(meta, "swallowed")
    stage["ctx"] |= copied(event.context.get("set") or {})


def _lease(event: Event) -> Row:
    meta = event.meta
    return {"attempt": _number(meta, "attempt"), "worker": meta.get("worker"), "lease_token": _token(meta)}


def _number(meta: dict[str, Any], name: str) -> Any:
    """Return a number, 0 where there is none: a fact that is not whole makes a row that differs, not a failure."""
    return meta.get(name) or 0


def _token(meta: dict[str, Any]) -> str | None:
    token = meta.get("lease_token")
    return None if token is None else str(UUID(token))


def _available(event: Event, delay_seconds: float) -> str:
    return _later(event.ingest_time, delay_seconds)


def _later(time: datetime, seconds: float) -> str:
    """Add seconds as PostgreSQL does: in whole microseconds, the half to the even."""
    return moment(time + timedelta(microseconds=round(seconds * 1_000_000)))


WORK_TYPES: Final = frozenset(types_applied_by("apply_open_work"))
"""The events that say something about open work."""

_RULES: Final[dict[str, Callable[[OpenWork, Event], None]]] = {
    **dict.fromkeys(ENDING, _execution_ended),
    "execution.requested": _requested,
    "command.issued": _issued,
    "command.claimed": _claimed,
    "command.abandoned": _command_freed,
    "command.attempt_failed": _command_freed,
    "command.returned": _command_freed,
    "command.completed": _command_ended,
    "command.failed": _command_ended,
    "stage.opened": _opened,
    "stage.closed": _closed,
    "frame.checkpointed": _checkpointed,
    "frame.dispatched": _dispatched,
    "frame.abandoned": _frame_freed,
    "frame.attempt_failed": _frame_freed,
    "frame.committed": _frame_ended,
    "frame.failed": _frame_ended,
    "loop.shard.enqueued": _dispatched,
    "loop.shard.abandoned": _frame_freed,
    "loop.shard.attempt_failed": _frame_freed,
    "loop.shard.done": _frame_ended,
    "loop.shard.failed": _frame_ended,
}
_CHANGES: Final = by_type(_RULES, WORK_TYPES)
