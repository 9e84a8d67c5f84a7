"""The rows of invalidations and backfills of datasets, as their events leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, part, payload
from noetl.model.event import Event

_ENDS: Final = ("backfill.cancelled", "backfill.completed", "backfill.failed")


def _invalidated(tables: Tables, event: Event) -> None:
    meta, own, dependents = event.meta, _own(event), part(event, "dependents", {})
    if own in tables["data_invalidation"]:
        return
    at = moment(event.ingest_time)
    tables.put(
        "data_invalidation",
        {
            "invalidation_id": own,
            **{name: identity(meta.get(name)) for name in ("dataset_uuid", "dataset_version")},
            **{name: meta.get(name) for name in ("scope", "partition_key", "reason", "note", "requested_by")},
            "row_filter": part(event, "row_filter"),
            "dependents": dependents,
            "processed_by": {},
            "status": "open" if dependents else "closed",
            "closed_because": None,
            "created_at": at,
            "closed_at": None if dependents else at,
        },
    )


def _processed(tables: Tables, event: Event) -> None:
    row, generation = tables["data_invalidation"].get(_own(event)), event.meta.get("generation")
    if row is None:
        return
    done = row["processed_by"]
    done[generation] = done.get(generation, 0) + 1
    if row["status"] == "open" and all(done.get(one, 0) >= tasks for one, tasks in row["dependents"].items()):
        row |= {"status": "closed", "closed_at": moment(event.ingest_time)}


def _closed(tables: Tables, event: Event) -> None:
    row = tables["data_invalidation"].get(_own(event))
    if row is not None and row["status"] == "open":
        because = event.meta.get("because")
        row |= {"status": "closed", "closed_at": moment(event.ingest_time), "closed_because": because}


def _requested(tables: Tables, event: Event) -> None:
    meta, own, at = event.meta, _own(event), moment(event.ingest_time)
    if own in tables["backfill"]:
        return
    tables.put(
        "backfill",
        {
            "backfill_id": own,
            "version": event.stream_version,
            "job": event.node_name,
            **{name: identity(meta.get(name)) for name in ("generation", "dataset_uuid", "dataset_version")},
            **{name: meta.get(name) for name in ("dag", "total", "max_in_flight", "requested_by")},
            "selection": part(event, "selection", {}),
            "keys_ref": payload(event),
            **dict.fromkeys(("queued", "made", "tasks"), 0),
            "status": "queueing" if meta.get("total") else "running",
            "error": None,
            "created_at": at,
            "moved_at": at,
            "ended_at": None,
        },
    )


def _queued(tables: Tables, event: Event) -> None:
    meta, own = event.meta, _own(event)
    prefix, rests = event.context.get("prefix", ""), event.context.get("keys", "").split("\n")
    for ordinal, rest in enumerate(rests, meta.get("first", 0)):
        tables.put("backfill_partition", {"backfill_id": own, "ordinal": ordinal, "partition_key": prefix + rest})
    row = _moved(tables, event)
    if row is not None:
        row["queued"] += meta.get("count", 0)
        if row["status"] == "queueing" and row["queued"] >= row["total"]:
            row["status"] = "running"


def _advanced(tables: Tables, event: Event) -> None:
    row = _moved(tables, event, made=event.meta.get("made"))
    if row is not None:
        row["tasks"] += event.meta.get("tasks", 0)


def _resumed(tables: Tables, event: Event) -> None:
    row = _moved(tables, event, error=event.error)
    if row is not None:
        row["status"] = "queueing" if row["queued"] < row["total"] else "running"


def _changed(tables: Tables, event: Event) -> None:
    _moved(tables, event, status=event.event_type.partition(".")[2], error=event.error)


def _ended(tables: Tables, event: Event) -> None:
    own, partitions = _own(event), tables["backfill_partition"]
    _changed(tables, event)
    _moved(tables, event, ended_at=moment(event.ingest_time))
    for key in [key for key, row in partitions.items() if row["backfill_id"] == own]:
        del partitions[key]


def _moved(tables: Tables, event: Event, **changes: Any) -> Row | None:
    row = tables["backfill"].get(_own(event))
    if row is not None:
        row |= {"version": event.stream_version, "moved_at": moment(event.ingest_time), **changes}
    return row


def _own(event: Event) -> str:
    return event.stream_id.rpartition("/")[2]


CHANGES_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "dataset.invalidated": _invalidated,
    "invalidation.processed": _processed,
    "invalidation.closed": _closed,
    "backfill.requested": _requested,
    "backfill.queued": _queued,
    "backfill.advanced": _advanced,
    "backfill.resumed": _resumed,
    "backfill.paused": _changed,
    **dict.fromkeys(_ENDS, _ended),
}
