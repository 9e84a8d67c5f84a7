"""Rows by table and key, as events leave them, and how their values are written. What heartbeats move is not here."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec

from noetl.kernel.projections.folds.fold import Row, copied, moment
from noetl.model.event import Event

Table = dict[str, Row]
"""Rows by their key, its columns joined by `|`."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "dag_version": ("dag_version_id",),
    "dag_current_version": ("dag",),
    "dag_version_dataset": ("dag_version_id", "dataset_uuid"),
    "job": ("job_id",),
    "dataset": ("dataset_uuid",),
    "dataset_version": ("dataset_version",),
    "dataset_schema": ("dataset_version", "version"),
    "partition_version": ("dataset_version", "partition_key", "version"),
    "task": ("task_id",),
    "task_input": ("task_id", "input_dataset_version", "input_partition_key", "input_version"),
    "dataset_cursor": ("consumer", "dataset_version", "partition_key"),
    "operator_state": ("generation", "state_key"),
    "outbox": ("outbox_id",),
    "org": (),
    "app_user": ("user_id",),
    "org_role": ("role_id",),
    "org_role_membership": ("role_id", "user_id"),
    "dataset_reader": ("dataset_uuid", "role"),
    "query_audit": ("query_id",),
    "schedule": ("schedule_id",),
    "cron_slot": ("schedule_id", "plan_time"),
    "data_invalidation": ("invalidation_id",),
    "backfill": ("backfill_id",),
    "backfill_partition": ("backfill_id", "ordinal"),
    "alert_rules": ("name",),
    "alert": ("alert_id",),
    "delivery": ("delivery_id",),
    "pin": ("pin_id",),
    "retention_policy": (),
    "sweep": ("kind",),
    "retired_generation": ("dataset_version",),
    "trimmed_version": ("dataset_version", "partition_key", "version"),
    "view_version": ("version_id",),
    "dataset_lineage": ("dataset_version", "version"),
    "column_lineage": ("dataset_version", "version", "place"),
}
"""The tables with the columns that name a row within its organization."""


class Tables(defaultdict[str, Table]):
    """All rows of an organization's pipelines."""

    def __init__(self) -> None:
        super().__init__(dict)

    def put(self, table: str, row: Row) -> None:
        """Add a row, in place of the one with its key."""
        self[table][key_of(table, row)] = row

    def put_outbox(self, event: Event, name: str, kind: str, payload: Row, delay_seconds: float = 0) -> None:
        """Add what has to follow from an event."""
        self.put(
            "outbox",
            {
                "outbox_id": outbox_id(name),
                "kind": kind,
                "payload": payload,
                "execution_id": str(event.execution_id),
                "available_at": later(event, delay_seconds),
                "created_at": moment(event.ingest_time),
            },
        )


def key_of(table: str, row: Row) -> str:
    """Return the key of a row."""
    return "|".join(str(row[column]) for column in KEYS[table])


def outbox_id(name: str) -> str:
    """Return the id of what has to follow: the beginning of the SHA-256 of its name."""
    return str(UUID(bytes=sha256(name.encode()).digest()[:16]))


def later(event: Event, delay_seconds: float) -> str:
    """Add a delay as PostgreSQL does: in whole microseconds, the half to the even."""
    return moment(event.ingest_time + timedelta(microseconds=round(delay_seconds * 1_000_000)))


def identity(value: Any) -> str | None:
    """Write a UUID the one way."""
    return None if value is None else str(UUID(value))


def number(value: Any) -> float | None:
    """Write a number that may have a fraction."""
    return None if value is None else float(value)


def payload(event: Event) -> Row | None:
    """Return the reference an event carries."""
    return None if event.payload_ref is None else msgspec.to_builtins(event.payload_ref)


def part(event: Event, name: str, default: Any = None) -> Any:
    """Return a copy of one field of the event's context."""
    found = event.context.get(name)
    return default if found is None else copied(found)
