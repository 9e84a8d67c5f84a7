"""The execution fold: every event of an execution goes in, its status and the progress of its loops come out.

Only events of the playbook, the workflow or the execution itself end it: a failed command may be retried, tolerated or
counted, so it says nothing about the whole. An ended execution stays as it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.kernel.projections.folds import progress
from noetl.kernel.projections.folds.fold import EVERY_TYPE, FRAME_TYPES, Fold, Row, moment, often, opens, text_of
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.dispatch import by_type
from noetl.model.catalogue.rows import types_projected
from noetl.model.event import Event

_RUNS: Final = frozenset({"deploy", "emission"})
"""Executions that no playbook drives: what they do is told by tasks, so they run from the moment they are asked for."""
_END_WORDS: Final = {"completed": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED"}
_END_STATUS: Final = {name: _END_WORDS[name.rpartition(".")[2]] for name in ENDING}


def _key(event: Event) -> str:
    return often(event.execution_id)


def _apply(row: Row | None, event: Event) -> Row | None:
    if row is None:
        if event.stream_version != 1 or event.stream_id != f"execution/{event.execution_id}":
            return None
        row = _opened(event)
    row["events"] += 1
    row["last_event_type"] = event.event_type
    row["last_event_id"] = str(event.event_id)
    if event.node_name is not None:
        row["last_node_name"] = event.node_name
    change = _CHANGES[event.event_type]
    if change is not None:
        change(row, event)
    return row


def _apply_run(row: Row, events: list[Event]) -> None:
    last = events[-1]
    row["events"] += len(events)
    row["last_event_type"] = last.event_type
    row["last_event_id"] = str(last.event_id)
    row["last_node_name"] = next(
        (event.node_name for event in reversed(events) if event.node_name is not None), row["last_node_name"]
    )
    loops = row["state"]["loop"]
    for loop_id, node_name, changes in progress.frame_changes(events):
        entry = _entry(loops, loop_id, node_name)
        if entry is not None and not entry["completed"]:
            progress.add_changes(entry, changes)


def _opened(event: Event) -> Row:
    return {
        "execution_id": often(event.execution_id),
        "catalog_id": event.catalog_id,
        "parent_execution_id": text_of(event.parent_execution_id),
        "status": "PENDING" if event.event_type == "execution.requested" else "RUNNING",
        "last_event_type": None,
        "last_node_name": None,
        "last_event_id": None,
        "start_time": None,
        "end_time": None,
        "error": None,
        "events": 0,
        "state": {"loop": {}, "fanout": {}},
    }


def _requested(row: Row, event: Event) -> None:
    kind = event.meta.get("kind")
    if kind in _RUNS:
        row["status"] = "RUNNING"
        row["start_time"] = moment(event.event_time)
        row["state"]["run"] = {"kind": kind, "path": event.meta.get("path")}


def _initialized(row: Row, event: Event) -> None:
    row["status"] = "RUNNING"
    if row["start_time"] is None:
        row["start_time"] = moment(event.event_time)
    if row["catalog_id"] is None:
        row["catalog_id"] = event.catalog_id
    if row["parent_execution_id"] is None:
        row["parent_execution_id"] = text_of(event.parent_execution_id)


def _ended(row: Row, event: Event) -> None:
    row["status"] = _END_STATUS[event.event_type]
    row["end_time"] = moment(event.event_time)
    row["error"] = event.error


def _loop_started(row: Row, event: Event) -> None:
    if opens(event, "loop", event.loop_id):
        row["state"]["loop"][event.node_name] = {"loop_id": str(event.loop_id), **progress.loop_entry(event)}


def _fanout_started(row: Row, event: Event) -> None:
    if opens(event, "loop", event.loop_id):
        row["state"]["fanout"][event.node_name] = {"loop_id": str(event.loop_id), **progress.fanout_entry(event)}


def _loop_changed(row: Row, event: Event) -> None:
    entry = _entry(row["state"]["loop"], event.loop_id, event.node_name)
    if entry is not None and not entry["completed"]:
        progress.LOOP_CHANGES[event.event_type](entry, event)


def _fanout_changed(row: Row, event: Event) -> None:
    entry = _entry(row["state"]["fanout"], event.loop_id, event.node_name)
    if entry is not None and entry["status"] == progress.FANOUT_RUNNING:
        progress.FANOUT_CHANGES[event.event_type](entry, event)


def _entry(entries: dict[str, Row], loop_id: int | None, node_name: str | None) -> Row | None:
    """Find the entry of a loop. A step that is entered again has a new loop, which old frames must not move."""
    if loop_id is None:
        return None
    name = often(loop_id)
    entry = entries.get(node_name) if node_name is not None else None
    if entry is not None and entry["loop_id"] == name:
        return entry
    return next((other for other in entries.values() if other["loop_id"] == name), None)


_RULES: Final[dict[str, Callable[[Row, Event], None]]] = {
    "execution.requested": _requested,
    "playbook.initialized": _initialized,
    "workflow.initialized": _initialized,
    **dict.fromkeys(_END_STATUS, _ended),
    "loop.started": _loop_started,
    "loop.fanout.started": _fanout_started,
    **dict.fromkeys(progress.LOOP_CHANGES, _loop_changed),
    **dict.fromkeys(progress.FANOUT_CHANGES, _fanout_changed),
}
_CHANGES: Final = by_type(_RULES, types_projected("execution"))

EXECUTION: Final = Fold(
    projection="execution",
    version=1,
    event_types=EVERY_TYPE,
    key=_key,
    apply=_apply,
    ended=lambda row: row["end_time"] is not None,
    per_execution=True,
    ends_with=ENDING,
    run_types=FRAME_TYPES,
    apply_run=_apply_run,
)
