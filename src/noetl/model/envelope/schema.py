"""The JSON form of the envelope: which fields no event goes without, and the JSON Schema of each field."""

from __future__ import annotations

from typing import Any

_ID = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "description": "64-bit id as decimal text"}
_TIME = {"type": "string", "format": "date-time", "pattern": "Z$"}
_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}

_REF: dict[str, Any] = {
    "type": "object",
    "required": ["uri", "sha256", "media_type", "bytes", "stored_sha256"],
    "properties": {
        "uri": {"type": "string", "pattern": "^noetl://"},
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "stored_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "media_type": _TEXT,
        "bytes": _COUNT,
        "encoding": {"enum": ["identity", "zstd", "aes256gcm", "zstd+aes256gcm"]},
        "rows": _COUNT,
        "schema_digest": _TEXT,
    },
    "additionalProperties": False,
}

MANDATORY = (
    "event_id",
    "tenant_id",
    "organization_id",
    "execution_id",
    "stream_id",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "schema_name",
    "schema_version",
    "event_time",
    "producer",
)
"""Fields no event goes without."""

ENVELOPE_SCHEMA: dict[str, dict[str, Any]] = {
    "event_id": _ID,
    "tenant_id": _TEXT,
    "organization_id": _TEXT,
    "execution_id": _ID,
    "stream_id": _TEXT,
    "stream_version": {"type": "integer", "minimum": 1},
    "shard": _COUNT,
    "position": {"type": "integer", "minimum": 1},
    "aggregate_type": _TEXT,
    "aggregate_id": _TEXT,
    "event_type": _TEXT,
    "schema_name": _TEXT,
    "schema_version": {"type": "integer", "minimum": 1},
    "event_time": _TIME,
    "ingest_time": _TIME,
    "producer": _TEXT,
    "causation_id": _ID,
    "correlation_id": _TEXT,
    "idempotency_key": _TEXT,
    "parent_execution_id": _ID,
    "catalog_id": _TEXT,
    "node_name": _TEXT,
    "node_type": _TEXT,
    "status": _TEXT,
    "stage_id": _ID,
    "frame_id": _ID,
    "loop_id": _ID,
    "command_id": _TEXT,
    "shard_id": _TEXT,
    "current_index": _COUNT,
    "current_item": {},
    "payload_ref": _REF,
    "fields_ref": _REF,
    "meta": {"type": "object"},
    "context": {"type": "object"},
    "result": {"type": "object"},
    "error": _TEXT,
}
"""Every field of the envelope with its JSON form."""
