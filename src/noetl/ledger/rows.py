"""Turns a row of `noetl.event` back into an Event."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from noetl.model.event import Draft, Event
from noetl.model.payload_ref import PayloadRef

JSON_COLUMNS = ("current_item", "payload_ref", "fields_ref", "meta", "context", "result")
ACCEPTED_COLUMNS = ("stream_version", "shard", "position", "ingest_time")

_FIRST_JSON = Draft.__struct_fields__.index(JSON_COLUMNS[0])
_BEHIND_JSON = _FIRST_JSON + len(JSON_COLUMNS)
# Events are made from rows by position, millions at a time: the JSON fields must lie together for that.
assert Draft.__struct_fields__[_FIRST_JSON:] == (*JSON_COLUMNS, "error")

COLUMNS = ", ".join((*Draft.__struct_fields__, *ACCEPTED_COLUMNS))
"""The columns to select, in the order `to_events` expects."""

JSON_PLACES = range(_FIRST_JSON, _BEHIND_JSON)
"""Where the JSON columns stand among them."""

_event: Callable[..., Event] = Event
_decode = msgspec.json.Decoder().decode
_decode_ref = msgspec.json.Decoder(PayloadRef).decode


def to_events(rows: Iterable[Any]) -> list[Event]:
    """Decode rows selected with `COLUMNS`."""
    return [_to_event(row) for row in rows]


def _to_event(row: Any) -> Event:
    *plain, item, payload, fields, meta, context, result, error, version, shard, position, ingest_time = row
    return _event(
        *plain,
        _decode(item) if item else None,
        _decode_ref(payload) if payload else None,
        _decode_ref(fields) if fields else None,
        _decode(meta) if meta else {},
        _decode(context) if context else {},
        _decode(result) if result else {},
        error,
        stream_version=version,
        shard=shard,
        position=position,
        ingest_time=ingest_time,
    )
