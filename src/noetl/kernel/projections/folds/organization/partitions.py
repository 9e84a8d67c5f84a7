"""The rows of data: partitions, schemas, column lineage, operator state, and what is pinned or was removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, key_of, part, payload
from noetl.model.event import Event, parse_time


def _partition_changed(tables: Tables, event: Event) -> None:
    meta, gone, version = event.meta, event.event_type == "partition.dropped", event.stream_version
    named: dict[str, Any] = {
        "dataset_uuid": identity(meta.get("dataset_uuid")),
        "dataset_version": identity(meta.get("dataset_version")),
        "partition_key": meta.get("partition_key"),
        "version": version,
    }
    before: Row | None = tables["partition_version"].get(
        f"{named['dataset_version']}|{named['partition_key']}|{version - 1}"
    )
    if before is not None:
        before["current"] = False
    tables.put(
        "partition_version",
        {
            **named,
            "current": True,
            "dropped": gone,
            "manifest_ref": payload(event),
            "row_count": meta.get("rows", 0),
            "bytes": meta.get("bytes", 0),
            "files": meta.get("files", 0),
            "schema_hash": meta.get("schema_hash"),
            "content_digest": meta.get("content_digest"),
            "task_id": identity(meta.get("task_id")),
            "attempt": meta.get("attempt"),
            "committed_at": moment(event.ingest_time),
        },
    )
    route = f"route:{named['dataset_version']}:{named['partition_key']}:{version}"
    tables.put_outbox(event, route, "route_event", {**named, "dropped": gone})


def _schema_set(tables: Tables, event: Event) -> None:
    meta = event.meta
    tables.put(
        "dataset_schema",
        {
            "dataset_version": identity(meta.get("dataset_version")),
            "version": event.stream_version,
            "dataset_uuid": identity(meta.get("dataset_uuid")),
            "schema": part(event, "schema", []),
            "schema_hash": meta.get("schema_hash"),
            "change": meta.get("change"),
        },
    )


def _state_saved(tables: Tables, event: Event) -> None:
    tables.put(
        "operator_state",
        {
            "generation": identity(event.meta.get("generation")),
            "state_key": event.meta.get("state_key"),
            "state": part(event, "state"),
            "version": event.stream_version,
        },
    )


PARTITION_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "partition.committed": _partition_changed,
    "partition.dropped": _partition_changed,
    "dataset.schema_set": _schema_set,
    "job.state_saved": _state_saved,
}


def _lineage_set(tables: Tables, event: Event) -> None:
    meta = event.meta
    named = {"dataset_version": identity(meta.get("dataset_version")), "version": event.stream_version}
    told = {"how": meta.get("how"), "job": event.node_name}
    dataset = identity(meta.get("dataset_uuid"))
    tables.put(
        "dataset_lineage",
        {
            **named,
            **told,
            "dataset_uuid": dataset,
            "number": meta.get("version"),
            "lineage_hash": meta.get("lineage_hash"),
            "reason": part(event, "reason"),
            "inputs": part(event, "inputs", []),
            "columns_ref": payload(event),
        },
    )
    for place, (column, source, source_column, kind) in enumerate(part(event, "columns", [])):
        tables.put(
            "column_lineage",
            {
                **named,
                **told,
                "place": place,
                "output_dataset_uuid": dataset,
                "output_column": column,
                "input_dataset_uuid": identity(source),
                "input_column": source_column,
                "kind": kind,
            },
        )


LINEAGE_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {"dataset.lineage_set": _lineage_set}


def _policy_set(tables: Tables, event: Event) -> None:
    tables["retention_policy"][""] = {
        "policy": part(event, "policy", {}),
        "set_by": event.meta.get("by") or "",
        "set_at": moment(event.ingest_time),
    }


def _created(tables: Tables, event: Event) -> None:
    meta = event.meta
    row: Row = {
        "pin_id": identity(meta.get("pin_id")),
        "kind": meta.get("kind"),
        "dataset_uuid": identity(meta.get("dataset_uuid")),
        "execution_id": meta.get("execution_id"),
        "mark": meta.get("mark"),
        "note": meta.get("note") or "",
        "until": _time(meta.get("until")),
        "created_by": meta.get("by") or "",
        "created_at": moment(event.ingest_time),
        "released_by": None,
        "released_at": None,
    }
    tables["pin"].setdefault(key_of("pin", row), row)


def _released(tables: Tables, event: Event) -> None:
    row = tables["pin"].get(str(identity(event.meta.get("pin_id"))))
    if row is not None and row["released_at"] is None:
        row |= {"released_at": moment(event.ingest_time), "released_by": event.meta.get("by") or ""}


def _swept(tables: Tables, event: Event) -> None:
    meta, kind = event.meta, event.meta.get("kind")
    known = tables["sweep"].get(str(kind))
    before: str | None = None if known is None else known["until"]
    moments = [until for until in (before, _time(meta.get("until"))) if until is not None]
    tables.put(
        "sweep",
        {
            "kind": kind,
            "items": meta.get("items"),
            "bytes": meta.get("bytes") or 0,
            # Written in one width, so that the later one is also the greater text.
            "until": max(moments, default=None),
            "swept_at": moment(event.ingest_time),
        },
    )


def _trimmed(tables: Tables, event: Event) -> None:
    meta = event.meta
    for partition_key, version in part(event, "versions", []):
        row: Row = {
            "dataset_version": identity(meta.get("dataset_version")),
            "partition_key": partition_key,
            "version": version,
            "dataset_uuid": identity(meta.get("dataset_uuid")),
            "reason": meta.get("reason"),
            "trimmed_at": moment(event.ingest_time),
        }
        tables["trimmed_version"].setdefault(key_of("trimmed_version", row), row)


def _let_go(tables: Tables, event: Event) -> None:
    meta, at = event.meta, moment(event.ingest_time)
    row: Row = {
        "dataset_version": identity(meta.get("dataset_version")),
        "dataset_uuid": identity(meta.get("dataset_uuid")),
        "generation": identity(meta.get("generation")),
        "reason": meta.get("reason"),
        "served_until": _time(meta.get("served_until")),
        "retired_at": at,
        "purged_at": at if event.event_type == "generation.purged" else None,
    }
    known = tables["retired_generation"].setdefault(key_of("retired_generation", row), row)
    known |= {"reason": row["reason"], "purged_at": row["purged_at"]}


def _time(text: str | None) -> str | None:
    return None if text is None else moment(parse_time(text))


PINS_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "pin.policy_set": _policy_set,
    "pin.created": _created,
    "pin.released": _released,
    "pin.swept": _swept,
    "generation.retired": _let_go,
    "generation.trimmed": _trimmed,
    "generation.purged": _let_go,
}
