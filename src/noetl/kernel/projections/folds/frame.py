"""The frame fold: a frame's dispatches, losses and end go in, one row per frame comes out.

The ledger's fences decide which holder may speak for a frame; the fold records what was accepted, in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.kernel.projections.folds.fold import Fold, Row, moment, often, opens, reference
from noetl.model.catalogue.dispatch import exactly
from noetl.model.catalogue.rows import types_projected
from noetl.model.event import Event


def _key(event: Event) -> str | None:
    frame_id = event.frame_id
    # Not remembered like the ids of stages and loops: most frames are named only twice.
    return None if frame_id is None else f"{event.execution_id}/{frame_id}"


def _apply(row: Row | None, event: Event) -> Row | None:
    kind = event.event_type
    if row is None:
        return _opened(event) if kind == "frame.dispatched" and opens(event, "frame", event.frame_id) else None
    _CHANGES[kind](row, event)
    return row


def _opened(event: Event) -> Row:
    meta = event.meta
    return {
        "frame_id": str(event.frame_id),
        "stage_id": None if event.stage_id is None else often(event.stage_id),
        "execution_id": often(event.execution_id),
        "loop_id": None if event.loop_id is None else often(event.loop_id),
        "status": "DISPATCHED",
        "owner_worker": meta.get("worker"),
        "attempts": meta.get("attempt", 1),
        "row_count": meta.get("row_count", 0),
        "failed_count": 0,
        "cursor": event.context.get("cursor"),
        "input_ref": reference(event.payload_ref),
        "output_ref": None,
        "claimed_event_id": str(event.event_id),
        "terminal_event_id": None,
        "created_at": moment(event.event_time),
        "completed_at": None,
        "error": None,
    }


def _dispatched(row: Row, event: Event) -> None:
    """A new owner re-runs exactly the rows the first one was given, so what names them stays unless named again."""
    row["status"] = "DISPATCHED"
    row["owner_worker"] = event.meta.get("worker")
    row["attempts"] = event.meta.get("attempt", row["attempts"])
    row["claimed_event_id"] = str(event.event_id)
    if event.payload_ref is not None:
        row["input_ref"] = reference(event.payload_ref)


def _checkpointed(row: Row, event: Event) -> None:
    if "cursor" in event.context:
        row["cursor"] = event.context["cursor"]


def _abandoned(row: Row, _event: Event) -> None:
    row["status"] = "ABANDONED"
    row["owner_worker"] = None


def _attempt_failed(row: Row, event: Event) -> None:
    row["status"] = "ATTEMPT_FAILED"
    row["owner_worker"] = None
    row["error"] = event.error


def _committed(row: Row, event: Event) -> None:
    meta = event.meta
    row["status"] = "COMMITTED"
    row["attempts"] = meta.get("attempt", row["attempts"])
    row["row_count"] = meta.get("row_count", row["row_count"])
    row["failed_count"] = meta.get("failed_count", 0)
    row["output_ref"] = reference(event.payload_ref)
    row["error"] = None
    if "cursor" in event.context:
        row["cursor"] = event.context["cursor"]
    _ended(row, event)


def _failed(row: Row, event: Event) -> None:
    row["status"] = "FAILED"
    row["error"] = event.error if event.error is not None else row["error"]
    _ended(row, event)


def _ended(row: Row, event: Event) -> None:
    row["terminal_event_id"] = str(event.event_id)
    row["completed_at"] = moment(event.event_time)


_RULES: Final[dict[str, Callable[[Row, Event], None]]] = {
    "frame.dispatched": _dispatched,
    "frame.checkpointed": _checkpointed,
    "frame.abandoned": _abandoned,
    "frame.attempt_failed": _attempt_failed,
    "frame.committed": _committed,
    "frame.failed": _failed,
}
_CHANGES: Final = exactly(_RULES, types_projected("frame"))

FRAME: Final = Fold(
    projection="frame",
    version=1,
    event_types=frozenset(_CHANGES),
    key=_key,
    apply=_apply,
    ended=lambda row: row["terminal_event_id"] is not None,
    per_execution=True,
    ends_with=frozenset({"frame.committed", "frame.failed"}),
)
