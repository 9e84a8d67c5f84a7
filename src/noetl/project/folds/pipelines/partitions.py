"""The rows of data: partitions and schemas of generations, and what operators keep between tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.model.event import Event
from noetl.project.folds.fold import Row, moment
from noetl.project.folds.pipelines.tables import Tables, identity, part, payload


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
