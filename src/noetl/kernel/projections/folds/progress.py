"""How events move a loop or a fan-out forward; one rule for their own rows and for the summary in the execution's row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.kernel.projections.folds.fold import Row
from noetl.model.catalogue.dispatch import exactly, undeclared
from noetl.model.catalogue.rows import types_of, types_projected
from noetl.model.event import Event

FANOUT_RUNNING: Final = "running"


def loop_entry(event: Event) -> Row:
    """Return the progress of a loop that has just started."""
    meta, ref = event.meta, event.payload_ref
    return {
        "total": meta.get("collection_size"),
        "done": 0,
        "failed": 0,
        "collection_ref": event.context.get("collection_ref") or (ref.uri if ref is not None else None),
        "mode": meta.get("mode", "sequential"),
        "completed": False,
    }


def fanout_entry(event: Event) -> Row:
    """Return the progress of a fan-out that has just started."""
    return {"total_shards": event.meta.get("total_shards"), "done": 0, "failed": 0, "status": FANOUT_RUNNING}


def _frame_committed(entry: Row, event: Event) -> None:
    meta = event.meta
    failed = meta.get("failed_count", 0)
    entry["done"] += meta.get("row_count", 0) - failed
    entry["failed"] += failed


def _frame_failed(entry: Row, event: Event) -> None:
    # Without a count at least one row failed: a loop with a failed frame must never look clean.
    entry["failed"] += event.meta.get("row_count", 1)


def _command_completed(entry: Row, event: Event) -> None:
    if event.frame_id is None and event.stage_id is None:  # rows of framed work are counted by their frames
        entry["done"] += 1


def _command_failed(entry: Row, event: Event) -> None:
    if event.frame_id is None and event.stage_id is None:
        entry["failed"] += 1


def _loop_done(entry: Row, event: Event) -> None:
    entry["completed"] = True
    if entry["total"] is None:  # only the end of a cursor loop tells how many rows it had
        entry["total"] = event.result.get("context", {}).get("total")


def _shard_done(entry: Row, _event: Event) -> None:
    entry["done"] += 1


def _shard_failed(entry: Row, _event: Event) -> None:
    entry["failed"] += 1


def _fanin_completed(entry: Row, event: Event) -> None:
    entry["status"] = event.result.get("status", "complete")


_LOOP_RULES: Final[dict[str, Callable[[Row, Event], None]]] = {
    "frame.committed": _frame_committed,
    "frame.failed": _frame_failed,
    "command.completed": _command_completed,
    "command.failed": _command_failed,
    "loop.done": _loop_done,
}
LOOP_CHANGES: Final = exactly(_LOOP_RULES, {*types_projected("loop")} - {"loop.started"})
"""How a running loop's entry changes, by event type."""

_FANOUT_RULES: Final[dict[str, Callable[[Row, Event], None]]] = {
    "loop.shard.done": _shard_done,
    "loop.shard.failed": _shard_failed,
    "loop.fanin.completed": _fanin_completed,
}
FANOUT_CHANGES: Final = exactly(_FANOUT_RULES, {*types_projected("fanout")} - {"loop.fanout.started"})
"""How a running fan-out's entry changes, by event type."""


_UNCOUNTED: Final = frozenset(types_of("frame")) - frozenset(types_projected("loop"))


def frame_changes(events: list[Event]) -> list[tuple[int | None, str | None, tuple[int, int]]]:
    """Return, for each loop and step the frames name, how many of its rows were done and failed."""
    changes: dict[tuple[int | None, str | None], tuple[int, int]] = {}
    for event in events:
        kind = event.event_type
        if kind == "frame.committed":
            meta = event.meta
            failed = meta.get("failed_count", 0)
            done = meta.get("row_count", 0) - failed
        elif kind == "frame.failed":
            done, failed = 0, event.meta.get("row_count", 1)
        elif kind in _UNCOUNTED:
            continue
        else:
            raise undeclared(kind)
        name = (event.loop_id, event.node_name)
        before = changes.get(name)
        changes[name] = (done, failed) if before is None else (before[0] + done, before[1] + failed)
    return [(loop_id, node_name, counts) for (loop_id, node_name), counts in changes.items()]


def add_changes(entry: Row, counts: tuple[int, int]) -> None:
    """Move a running loop's entry by that many rows."""
    entry["done"] += counts[0]
    entry["failed"] += counts[1]
