"""Arrow batches of events go in, events come out, a few hundred at a time so that they are folded while still at hand.

Where only folds of ours listen, an event has just the fields they look at: one they do not know is then an error, never
a missing value, and columns nobody looks at need not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from noetl.model.event import (
    ACCEPTED_FIELDS,
    FIELDS,
    JSON_FIELDS,
    OBJECT_FIELDS,
    REFERENCE_FIELDS,
    TIME_FIELDS,
    Draft,
    Event,
)
from noetl.model.payload_ref import PayloadRef

TOGETHER: Final = 500
_DRAFT: Final = len(Draft.__struct_fields__)

Values = list[Any]


class HeardRef(msgspec.Struct, frozen=True, gc=False):
    """What folds of ours look at in a payload reference."""

    uri: str
    sha256: str


class HeardEvent(msgspec.Struct, frozen=True, gc=False):
    """What folds of ours look at in an event; JSON values may be shared between events, and nobody changes them."""

    event_id: int
    tenant_id: str
    organization_id: str
    execution_id: int
    stream_id: str
    event_type: str
    schema_name: str
    schema_version: int
    event_time: datetime
    parent_execution_id: int | None
    catalog_id: str | None
    node_name: str | None
    status: str | None
    stage_id: int | None
    frame_id: int | None
    loop_id: int | None
    payload_ref: HeardRef | None
    fields_ref: PayloadRef | None
    meta: dict[str, Any]
    context: dict[str, Any]
    result: dict[str, Any]
    error: str | None
    stream_version: int
    shard: int
    position: int


HEARD: Final = HeardEvent.__struct_fields__
"""The columns that folds of ours look at."""
ALL: Final = tuple(FIELDS)
"""The columns of a whole event."""

_json: Final = msgspec.json.Decoder().decode
_ref: Final = msgspec.json.Decoder(PayloadRef).decode
_heard_ref: Final = msgspec.json.Decoder(HeardRef).decode
_event: Callable[..., Event] = Event


def heard_events(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Any]]:
    """Give events with the columns of `HEARD`, some at a time."""
    for part in _parts(batches):
        yield list(map(HeardEvent, *(_heard(name, part.column(name)) for name in HEARD)))


def whole_events(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Any]]:
    """Give whole events, some at a time; each has values of its own, which the user's code may do with as it likes."""
    for part in _parts(batches):
        rows = zip(*(_whole(name, part.column(name)) for name in ALL), strict=True)
        yield [_event(*row[:_DRAFT], **dict(zip(ACCEPTED_FIELDS, row[_DRAFT:], strict=True))) for row in rows]


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, TOGETHER):
            yield batch.slice(start, TOGETHER)


def _heard(name: str, column: pa.Array) -> Values:
    if name in TIME_FIELDS:
        return _times(column)
    if name in REFERENCE_FIELDS:
        # What fields refer to is read before folds see the event, which takes the whole reference.
        read = _ref if name == "fields_ref" else _heard_ref
        return [None if text is None else read(text) for text in column.to_pylist()]
    if name in JSON_FIELDS:
        return _shared(column)
    return _plain(column)


def _whole(name: str, column: pa.Array) -> Values:
    if name in TIME_FIELDS:
        return _times(column)
    if name in REFERENCE_FIELDS:
        return [None if text is None else _ref(text) for text in column.to_pylist()]
    if name in OBJECT_FIELDS:
        return [_json(text) if text else {} for text in column.to_pylist()]
    if name in JSON_FIELDS:
        return [None if text is None else _json(text) for text in column.to_pylist()]
    return _plain(column)


def _shared(column: pa.Array) -> Values:
    """Decode each text once: thousands of events tell the same."""
    if column.null_count == len(column):
        return [_NOTHING] * len(column)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = [_json(text) for text in encoded.dictionary.to_pylist()]
    return [_NOTHING if place is None else values[place] for place in encoded.indices.to_pylist()]


def _plain(column: pa.Array) -> Values:
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_dictionary(column.type):
        values = column.dictionary.to_pylist()
        return [None if place is None else values[place] for place in column.indices.to_pylist()]
    plain: Values = column.to_pylist()
    return plain


def _times(column: pa.Array) -> Values:
    """Make times in UTC, many times quicker than Arrow itself does."""
    since: Any = column.cast(_MICROSECONDS).cast(pa.int64()).to_numpy().view("m8[us]")
    return list(map(_EPOCH.__add__, since.tolist()))


_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final[dict[str, Any]] = {}
