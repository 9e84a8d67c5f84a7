"""A row of the ledger as the body of a message: made by the one normalizer, its JSON columns byte for byte."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.ledger.normalizer import normalize
from noetl.model.event import Draft
from noetl.model.stream import Stream
from noetl.stream.encoding import message_id
from noetl.stream.port import Message

_COLUMNS: Final = (
    "execution_id", "event_id", "event_time", "causation_id", "parent_execution_id", "stage_id", "frame_id", "loop_id",
    "current_index", "schema_version", "aggregate_type", "aggregate_id", "event_type", "schema_name", "producer",
    "correlation_id", "idempotency_key", "catalog_id", "node_name", "node_type", "status", "command_id", "shard_id",
    "payload_sha256", "fields_sha256", "error",
)  # fmt: skip
_JSON: Final = ("meta", "context", "result", "current_item", "payload_ref", "fields_ref")
ROW_COLUMNS: Final = (*_COLUMNS, *_JSON)
"""The columns that the normalizer makes, in its order."""

_encode = msgspec.json.Encoder().encode


def row_body(stream: Stream, shard: int, draft: Draft) -> bytes:
    """Return the row of a fact; version, time of ingestion and position are given by the materializer."""
    row = normalize(draft)
    said: dict[str, object] = {name: value for name, value in zip(_COLUMNS, row, strict=False) if value is not None}
    said |= {
        name: msgspec.Raw(text.encode())
        for name, text in zip(_JSON, row[len(_COLUMNS) :], strict=True)
        if text is not None
    }
    said |= {
        "tenant_id": stream.tenant_id, "organization_id": stream.organization_id, "stream_id": stream.stream_id,
        "shard": shard,
    }  # fmt: skip
    return _encode(said)


def fact_message(stream: Stream, shard: int, draft: Draft) -> Message:
    """Return the message that makes a fact durable."""
    return Message(
        stream.tenant_id,
        draft.execution_id,
        shard,
        message_id(stream.tenant_id, stream.organization_id, draft.event_id),
        row_body(stream, shard, draft),
    )
