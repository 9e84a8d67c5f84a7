"""A row of the ledger as the body of a message: made by the one normalizer, its JSON columns byte for byte."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from noetl.errors import Corrupt
from noetl.ledger.normalizer import leaf_of, normalize
from noetl.model.envelope.columns import ROW_NAMES
from noetl.model.event import JSON_FIELDS, Draft
from noetl.model.stream import Stream
from noetl.stream.encoding import message_id
from noetl.stream.port import Message

_encode = msgspec.json.Encoder().encode


def row_body(stream: Stream, shard: int, draft: Draft) -> bytes:
    """Return the row of a fact; version, time of ingestion and position are given by the materializer."""
    row = normalize(draft)
    said: dict[str, Any] = {name: value for name, value in zip(ROW_NAMES, row, strict=True) if value is not None}
    for name in JSON_FIELDS:
        if name in said:
            said[name] = msgspec.Raw(said[name].encode())
    said |= {
        "tenant_id": stream.tenant_id, "organization_id": stream.organization_id, "stream_id": stream.stream_id,
        "shard": shard,
    }  # fmt: skip
    return _encode(said)


def leaf_of_body(body: bytes) -> bytes:
    """Return the leaf of the row in a body, whoever published it: columns that are null count as left out."""
    said = {name: value for name, value in orjson.loads(body).items() if value is not None}
    try:
        return leaf_of(msgspec.convert(said, Draft, strict=False))
    except msgspec.ValidationError as problem:
        raise Corrupt(f"a message of the stream is no row of an event: {problem}") from problem


def fact_message(stream: Stream, shard: int, draft: Draft) -> Message:
    """Return the message that makes a fact durable."""
    return Message(
        stream.tenant_id,
        draft.execution_id,
        shard,
        message_id(stream.tenant_id, stream.organization_id, draft.event_id),
        row_body(stream, shard, draft),
    )
