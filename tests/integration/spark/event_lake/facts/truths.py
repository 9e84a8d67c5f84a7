"""What facts must say, told once more in plain Python from the events alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from typing import Any

from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.event import Event
from noetl.model.ids import ROOT_ID_LIMIT, snowflake_time

Row = dict[str, Any]


def day_of(event: Event) -> date:
    """Return the day a fact about the event stands under."""
    if event.execution_id < ROOT_ID_LIMIT:
        return event.ingest_time.date()
    return snowflake_time(event.execution_id).date()


def folded(events: Iterable[Event]) -> dict[str, list[Row]]:
    """Return the rows of the projections."""
    state = FoldState(built_in_folds(), keep_ended=True)
    state.apply_many(sorted(events, key=lambda event: (event.shard, event.position)))
    return {name: [one.row for one in state.rows(name)] for name in ("execution", "frame", "loop", "fanout")}


_BEGINS = ("command.claimed", "frame.dispatched", "loop.shard.enqueued", "task.claimed")
_ENDS = {
    "completed": "completed", "committed": "completed", "done": "completed", "failed": "failed",
    "attempt_failed": "failed", "abandoned": "abandoned", "skipped": "skipped", "cancelled": "cancelled",
}  # fmt: skip


def attempts(events: Iterable[Event]) -> dict[tuple[str, str, int], Row]:
    """Return the attempts by kind, subject and number."""
    found: dict[tuple[str, str, int], Row] = {}
    last: dict[tuple[str, str], int] = {}
    for event in sorted(events, key=lambda one: (one.shard, one.position)):
        group, _, word = event.event_type.rpartition(".")
        if group not in ("command", "frame", "loop.shard", "task"):
            continue
        kind = "task" if group == "task" else "frame" if event.frame_id is not None else "command"
        own = event.stream_id.removeprefix("task/") if kind == "task" else event.frame_id or event.command_id
        subject = f"{event.execution_id}/{own}"
        number = event.meta.get("attempt") or last.get((kind, subject), 0)
        if event.event_type in _BEGINS or (event.event_type == "command.issued" and "worker" in event.meta):
            last[kind, subject] = number
            found[kind, subject, number] = {"started_at": event.event_time, "result": "running", "ms": None}
        elif word in _ENDS and (kind, subject, number) in found and found[kind, subject, number]["result"] == "running":
            ended = {"result": _ENDS[word], "ended_at": event.event_time, "ms": event.meta.get("duration_ms")}
            found[kind, subject, number] |= ended
    return found


def counted(events: Iterable[Event], execution_id: int) -> Row:
    """Return the metric set of one execution."""
    own = f"execution/{execution_id}"
    mine = [one for one in events if one.stream_id == own or one.stream_id.startswith(f"{own}/")]
    kinds = Counter(one.event_type for one in mine)
    frames = {one.frame_id: one.meta["row_count"] for one in mine if one.event_type in _BEGINS and one.frame_id}
    refs = {ref.sha256: ref.bytes for one in mine for ref in (one.payload_ref, one.fields_ref) if ref is not None}
    leased = sum("worker" in one.meta for one in mine if one.event_type == "command.issued")
    return {
        "command_events": sum(n for kind, n in kinds.items() if kind.startswith("command.")),
        "commands": kinds["command.issued"],
        "claims": leased + sum(kinds[kind] for kind in _BEGINS),
        "frames": len(frames),
        "rows": sum(frames.values()),
        "payloads": len(refs),
        "payload_bytes": sum(refs.values()),
        "recoveries": sum(n for kind, n in kinds.items() if kind.endswith(".abandoned")),
    }
