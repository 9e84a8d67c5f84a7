"""The rows of queries and of the readers of datasets, as the events of their streams leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.model.event import Event
from noetl.project.folds.fold import moment
from noetl.project.folds.pipelines.tables import Tables, identity, number, part


def _ended(tables: Tables, event: Event) -> None:
    meta = event.meta
    told = {name: meta.get(name) for name in ("code", "asked_by", "engine", "sql_sha256", "mark", "rows", "bytes")}
    tables.put(
        "query_audit",
        {
            "query_id": str(event.execution_id),
            "outcome": event.event_type.partition(".")[2],
            **told,
            "token_id": identity(meta.get("token_id")),
            "user_id": identity(meta.get("user_id")),
            "pinned": part(event, "datasets", []),
            "milliseconds": number(meta.get("milliseconds")),
            "asked_at": moment(event.ingest_time),
        },
    )


def _readers_set(tables: Tables, event: Event) -> None:
    dataset, readers = str(identity(event.meta.get("dataset_uuid"))), tables["dataset_reader"]
    for key in [key for key, row in readers.items() if row["dataset_uuid"] == dataset]:
        del readers[key]
    for role in event.meta.get("roles") or ():
        tables.put("dataset_reader", {"dataset_uuid": dataset, "role": role})


QUERIES_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "query.answered": _ended,
    "query.refused": _ended,
    "query.failed": _ended,
    "query.readers_set": _readers_set,
}
