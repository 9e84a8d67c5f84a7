"""The stage fold: the opening and closing of a stage and the ends of its frames go in, one row per stage comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.kernel.projections.folds.fold import FRAME_TYPES, Fold, Row, moment, often, opens, row_id_within, text_of
from noetl.model.catalogue.dispatch import exactly
from noetl.model.catalogue.rows import types_projected
from noetl.model.event import Event


def _key(event: Event) -> str | None:
    stage_id = event.stage_id
    return None if stage_id is None else row_id_within(event.execution_id, stage_id)


def _apply(row: Row | None, event: Event) -> Row | None:
    kind = event.event_type
    if row is None:
        return _opened(event) if kind == "stage.opened" and opens(event, "stage", event.stage_id) else None
    _CHANGES[kind](row, event)
    return row


def _apply_run(row: Row, events: list[Event]) -> None:
    for event in events:
        _CHANGES[event.event_type](row, event)


def _opened(event: Event) -> Row:
    return {
        "stage_id": str(event.stage_id),
        "execution_id": often(event.execution_id),
        "loop_id": text_of(event.loop_id),
        "step_name": event.node_name,
        "kind": event.meta.get("kind"),
        "dsl_ref": event.meta.get("dsl_ref"),
        "frame_policy": event.context.get("frame_policy"),
        "status": "OPEN",
        "frames_dispatched": 0,
        "frames_committed": 0,
        "frames_failed": 0,
        "rows": 0,
        "rows_failed": 0,
        "started_at": moment(event.event_time),
        "ended_at": None,
        "opened_event_id": str(event.event_id),
        "closed_event_id": None,
        "error": None,
    }


def _opened_again(_row: Row, _event: Event) -> None:
    """Change nothing: a stage is opened once, and what speaks of it again says nothing new."""


def _dispatched(row: Row, event: Event) -> None:
    # Later versions are further attempts at a frame that is counted already.
    if event.stream_version == 1:
        row["frames_dispatched"] += 1


def _committed(row: Row, event: Event) -> None:
    row["frames_committed"] += 1
    row["rows"] += event.meta.get("row_count", 0)
    row["rows_failed"] += event.meta.get("failed_count", 0)


def _failed(row: Row, _event: Event) -> None:
    row["frames_failed"] += 1


def _closed(row: Row, event: Event) -> None:
    row["status"] = (event.status or "completed").upper()
    row["ended_at"] = moment(event.event_time)
    row["closed_event_id"] = str(event.event_id)
    row["error"] = event.error


_RULES: Final[dict[str, Callable[[Row, Event], None]]] = {
    "stage.opened": _opened_again,
    "frame.dispatched": _dispatched,
    "frame.committed": _committed,
    "frame.failed": _failed,
    "stage.closed": _closed,
}
_CHANGES: Final = exactly(_RULES, types_projected("stage"))

STAGE: Final = Fold(
    projection="stage",
    version=1,
    event_types=frozenset(_CHANGES),
    key=_key,
    apply=_apply,
    ended=lambda row: row["closed_event_id"] is not None,
    per_execution=True,
    ends_with=frozenset({"stage.closed"}),
    run_types=FRAME_TYPES,
    apply_run=_apply_run,
)
