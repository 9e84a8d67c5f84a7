"""Rows, events, payload references and snapshots for tests of projection stores, and short ways to read rows back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.kernel.projections.stores.port import ProjectionStore, Snapshot, StoredRow
from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import PRODUCER

CARE = Scope("acme", "care")
BILLING = Scope("acme", "billing")
OTHER = Scope("globex", "care")
EXECUTION = 604_876_797_720_658_689
SHARD = 3


def folded(row_id: str = "1/1", scope: Scope = CARE, projection: str = "frame", **fields: Any) -> FoldedRow:
    """Make a row; `row` replaces its content, any other field its lineage."""
    given: dict[str, Any] = {
        "version": 1,
        "execution_id": EXECUTION,
        "shard": SHARD,
        "first_position": 1,
        "last_position": 1,
        "row": {
            "status": "DISPATCHED",
            "cursor": {"first": 0, "share": 0.5},
            "note": "zerbrochen \N{COLLISION SYMBOL}",
        },
    }
    return FoldedRow(RowKey(scope.tenant_id, scope.organization_id, projection, row_id), **{**given, **fields})


def event(position: int = 1, scope: Scope = CARE, **fields: Any) -> Event:
    """Make an event of the shard that the rows here belong to."""
    given: dict[str, Any] = {
        "event_id": EXECUTION + position * 4096,
        "tenant_id": scope.tenant_id,
        "organization_id": scope.organization_id,
        "execution_id": EXECUTION,
        "stream_id": f"execution/{EXECUTION}",
        "aggregate_type": "execution",
        "aggregate_id": str(EXECUTION),
        "event_type": "step.exited",
        "schema_name": "noetl.step.exited",
        "schema_version": 1,
        "event_time": datetime(2026, 5, 16, tzinfo=UTC),
        "ingest_time": datetime(2026, 5, 17, tzinfo=UTC),
        "producer": PRODUCER,
        "stream_version": position,
        "shard": SHARD,
        "position": position,
    }
    return Event(**{**given, **fields})


def payload(scope: Scope = CARE, digit: str = "a", **fields: Any) -> PayloadRef:
    """Make a reference to a payload nobody stored."""
    digest = digit * 64
    uri = payload_uri(scope.tenant_id, scope.organization_id, digest)
    given: dict[str, Any] = {"media_type": "application/json", "bytes": 7, "stored_sha256": digest, **fields}
    return PayloadRef(uri=uri, sha256=digest, **given)


def snapshot(version: int = 10, scope: Scope = CARE, **fields: Any) -> Snapshot:
    """Make a snapshot of an execution."""
    given: dict[str, Any] = {
        "aggregate_type": "execution",
        "aggregate_id": str(EXECUTION),
        "fold_versions": {"execution": 1, "frame": 2},
        "upcaster_digest": "u" * 64,
        "payload_root": "r" * 64,
        "encryption_context": "",
        "checksum": "c" * 64,
        "payload_ref": payload(scope, encoding="zstd"),
    }
    return Snapshot(scope=scope, version=version, **{**given, **fields})


async def rows_of(
    store: ProjectionStore, scope: Scope = CARE, projection: str = "frame", **options: Any
) -> list[StoredRow]:
    """Read all rows a query gives."""
    return [row async for row in store.query(scope, projection, **options)]


async def ids_of(store: ProjectionStore, scope: Scope = CARE, projection: str = "frame", **options: Any) -> list[str]:
    """Read the ids of all rows a query gives."""
    return [row.folded.key.row_id for row in await rows_of(store, scope, projection, **options)]
