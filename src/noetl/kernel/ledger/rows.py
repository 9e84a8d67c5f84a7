"""Turns a row of `noetl.event` back into an Event."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from noetl.model.event import ACCEPTED_FIELDS, FIELDS, JSON_FIELDS, OBJECT_FIELDS, REFERENCE_FIELDS, Event
from noetl.model.payload_ref import PayloadRef

COLUMNS: Final = ", ".join(FIELDS)
"""The columns to select, in the order `to_events` expects."""

_PLACES: Final = {name: place for place, name in enumerate(FIELDS)}

JSON_PLACES: Final = tuple(_PLACES[name] for name in JSON_FIELDS)
"""Where the JSON columns stand among them."""

_event: Callable[..., Event] = Event
_decode = msgspec.json.Decoder().decode
_decode_ref = msgspec.json.Decoder(PayloadRef).decode

_OBJECT_PLACES: Final = tuple(_PLACES[name] for name in JSON_FIELDS if name in OBJECT_FIELDS)
_DECODERS: Final[tuple[tuple[int, Callable[[str], Any]], ...]] = tuple(
    (_PLACES[name], _decode_ref if name in REFERENCE_FIELDS else _decode)
    for name in JSON_FIELDS
    if name not in OBJECT_FIELDS
)
# Events are made from rows by position, millions at a time: what the ledger gives must be named as below.
assert ACCEPTED_FIELDS == ("stream_version", "shard", "position", "ingest_time")


def to_events(rows: Iterable[Any]) -> list[Event]:
    """Decode rows selected with `COLUMNS`."""
    return [_to_event(row) for row in rows]


def _to_event(row: Any) -> Event:
    *draft, version, shard, position, ingest_time = row
    for place, decode in _DECODERS:
        if (text := draft[place]) is not None:
            draft[place] = decode(text)
    for place in _OBJECT_PLACES:
        draft[place] = {} if (text := draft[place]) is None else _decode(text)
    return _event(*draft, stream_version=version, shard=shard, position=position, ingest_time=ingest_time)
