"""Turns a row of `noetl.event` back into an Event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef

PLAIN_COLUMNS = (
    "execution_id",
    "event_id",
    "position",
    "stream_version",
    "event_time",
    "ingest_time",
    "causation_id",
    "parent_execution_id",
    "stage_id",
    "frame_id",
    "loop_id",
    "current_index",
    "schema_version",
    "shard",
    "tenant_id",
    "organization_id",
    "stream_id",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "schema_name",
    "producer",
    "correlation_id",
    "idempotency_key",
    "catalog_id",
    "node_name",
    "node_type",
    "status",
    "command_id",
    "shard_id",
    "error",
)
JSON_COLUMNS = ("meta", "context", "result", "current_item", "payload_ref", "fields_ref")

COLUMNS = ", ".join((*PLAIN_COLUMNS, *JSON_COLUMNS))
"""The columns to select, in the order `to_events` expects."""

_decode = msgspec.json.Decoder().decode
_decode_ref = msgspec.json.Decoder(PayloadRef).decode
_PLAIN_COUNT = len(PLAIN_COLUMNS)


def to_events(rows: Iterable[Any]) -> list[Event]:
    """Decode rows selected with `COLUMNS`."""
    events = []
    for row in rows:
        (
            execution_id,
            event_id,
            position,
            stream_version,
            event_time,
            ingest_time,
            causation_id,
            parent_execution_id,
            stage_id,
            frame_id,
            loop_id,
            current_index,
            schema_version,
            shard,
            tenant_id,
            organization_id,
            stream_id,
            aggregate_type,
            aggregate_id,
            event_type,
            schema_name,
            producer,
            correlation_id,
            idempotency_key,
            catalog_id,
            node_name,
            node_type,
            status,
            command_id,
            shard_id,
            error,
            meta,
            context,
            result,
            current_item,
            payload_ref,
            fields_ref,
        ) = row
        events.append(
            Event(
                execution_id=execution_id,
                event_id=event_id,
                position=position,
                stream_version=stream_version,
                event_time=event_time,
                ingest_time=ingest_time,
                causation_id=causation_id,
                parent_execution_id=parent_execution_id,
                stage_id=stage_id,
                frame_id=frame_id,
                loop_id=loop_id,
                current_index=current_index,
                schema_version=schema_version,
                shard=shard,
                tenant_id=tenant_id,
                organization_id=organization_id,
                stream_id=stream_id,
                aggregate_type=aggregate_type,
                aggregate_id=aggregate_id,
                event_type=event_type,
                schema_name=schema_name,
                producer=producer,
                correlation_id=correlation_id,
                idempotency_key=idempotency_key,
                catalog_id=catalog_id,
                node_name=node_name,
                node_type=node_type,
                status=status,
                command_id=command_id,
                shard_id=shard_id,
                error=error,
                meta=_decode(meta) if meta else {},
                context=_decode(context) if context else {},
                result=_decode(result) if result else {},
                current_item=_decode(current_item) if current_item else None,
                payload_ref=_decode_ref(payload_ref) if payload_ref else None,
                fields_ref=_decode_ref(fields_ref) if fields_ref else None,
            )
        )
    return events
