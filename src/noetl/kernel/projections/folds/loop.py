"""The loop and fan-out folds: what a loop's rows or a fan-out's shards did goes in, one row of progress per activation comes out.

A step that is entered again starts a new loop with a new id, so its row is a new one.
"""

from __future__ import annotations

from typing import Final

from noetl.kernel.projections.folds import progress
from noetl.kernel.projections.folds.fold import FRAME_TYPES, Fold, Row, moment, often, opens, row_id_within
from noetl.model.catalogue.rows import types_projected
from noetl.model.event import Event


def _key(event: Event) -> str | None:
    loop_id = event.loop_id
    return None if loop_id is None else row_id_within(event.execution_id, loop_id)


def _names(event: Event) -> Row:
    return {
        "loop_id": str(event.loop_id),
        "execution_id": often(event.execution_id),
        "step_name": event.node_name,
        "started_at": moment(event.event_time),
        "ended_at": None,
    }


def _apply_loop(row: Row | None, event: Event) -> Row | None:
    kind = event.event_type
    if row is None:
        if kind == "loop.started" and opens(event, "loop", event.loop_id):
            return {**_names(event), **progress.loop_entry(event)}
        return None
    if kind != "loop.started":  # a second start of the same loop says nothing new
        progress.LOOP_CHANGES[kind](row, event)
    if kind == "loop.done":
        row["ended_at"] = moment(event.event_time)
    return row


def _apply_run(row: Row, events: list[Event]) -> None:
    for _, _, counts in progress.frame_changes(events):
        progress.add_changes(row, counts)


def _apply_fanout(row: Row | None, event: Event) -> Row | None:
    kind = event.event_type
    if row is None:
        if kind == "loop.fanout.started" and opens(event, "loop", event.loop_id):
            return {**_names(event), **progress.fanout_entry(event)}
        return None
    if kind != "loop.fanout.started":
        progress.FANOUT_CHANGES[kind](row, event)
    if kind == "loop.fanin.completed":
        row["ended_at"] = moment(event.event_time)
    return row


LOOP: Final = Fold(
    projection="loop",
    version=1,
    event_types=frozenset(types_projected("loop")),
    key=_key,
    apply=_apply_loop,
    ended=lambda row: row["ended_at"] is not None,
    per_execution=True,
    ends_with=frozenset({"loop.done"}),
    run_types=FRAME_TYPES,
    apply_run=_apply_run,
)

FANOUT: Final = Fold(
    projection="fanout",
    version=1,
    event_types=frozenset(types_projected("fanout")),
    key=_key,
    apply=_apply_fanout,
    ended=lambda row: row["ended_at"] is not None,
    per_execution=True,
    ends_with=frozenset({"loop.fanin.completed"}),
)
