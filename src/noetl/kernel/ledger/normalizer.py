"""Turns a draft into the row that stands in the ledger, the same in every write path, and digests what it says.

The leaf of an event is the SHA-256 of its whole row but for what the ledger gives it: position, stream version and time of
ingestion. It is taken over a JSON array without spaces: tenant, organization, stream and shard, then the columns of the row in
the order of `ROW_NAMES`. Ids are written in full digits, times in RFC 3339 with six digits of a second or none, JSON columns as
texts that hold their canonical JSON. A column that is added later changes no leaf of an event that lacks it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final

import msgspec
from blake3 import blake3

from noetl.errors import EventInvalid
from noetl.model.canonical import CanonicalObject, canonical_json, exact_json
from noetl.model.envelope.columns import DRAFT_COLUMNS, INLINE_FIELDS, ROW_NAMES
from noetl.model.event import FIELDS, INLINE_LIMIT, OBJECT_FIELDS, Draft
from noetl.model.stream import Stream

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_ref_json = msgspec.json.Encoder(order="sorted").encode

Row = tuple[Any, ...]

# Compiled once: as fast as written out by hand, which getting the values by name or place is not.
_values: Final[Callable[[Draft], list[Any]]] = eval(  # noqa: S307 - the names are those of the declaration
    f"lambda draft: [{', '.join(f'draft.{column.field}' for column in DRAFT_COLUMNS)}]"
)
_PLACES: Final = {name: place for place, name in enumerate(ROW_NAMES)}
_OBJECTS: Final = tuple(_PLACES[name] for name in INLINE_FIELDS if name in OBJECT_FIELDS)
_VALUES: Final = tuple(_PLACES[name] for name in INLINE_FIELDS if name not in OBJECT_FIELDS)
_REFERENCES: Final = tuple(
    (_PLACES[column.field], _PLACES[column.name]) for column in DRAFT_COLUMNS if column.is_digest
)


def normalize(draft: Draft) -> Row:
    """Return the row of a draft, with the columns of `ROW_NAMES`, its JSON canonical; refuse what is too large."""
    row = _values(draft)
    size = 0
    for place in _OBJECTS:
        if value := row[place]:
            row[place] = text = _text(value)
            size += len(text)
        else:
            row[place] = None
    for place in _VALUES:
        if (value := row[place]) is not None:
            row[place] = text = _text(value)
            size += len(text)
    # Counting characters is enough for the common small case; bytes are counted only when it gets close.
    if size * 4 > INLINE_LIMIT and _bytes_in(row) > INLINE_LIMIT:
        raise EventInvalid(
            f"event {draft.event_id} ({draft.event_type}) carries more than {INLINE_LIMIT} bytes of JSON",
            hint="externalize large fields to the payload store first",
        )
    for place, digest_place in _REFERENCES:
        if (reference := row[place]) is not None:
            row[place] = _text(reference, _ref_json)
            row[digest_place] = reference.sha256
    return tuple(row)


def _bytes_in(row: Sequence[Any]) -> int:
    return sum(len(row[place].encode()) for place in (*_OBJECTS, *_VALUES) if row[place] is not None)


_said: Final[Callable[[Row], Row]] = itemgetter(
    *(_PLACES[column.name] for column in DRAFT_COLUMNS if not FIELDS[column.field].varies)
)


def content_digest(stream_id: str, rows: Sequence[Row]) -> bytes:
    """Digest what an append says, leaving out what differs between two tries of it: ids, times, producer and causes."""
    said = [[str(value) if type(value) is int else value for value in _said(row)] for row in rows]
    return blake3(canonical_json([stream_id, said])).digest()


_LEAF_COLUMNS: Final = 32
"""Columns of a row that every leaf has, null or not; a later one is there up to the last that is not null."""
_leaf_json: Final = msgspec.json.Encoder().encode


def leaf_text(stream: Stream, shard: int, row: Row) -> bytes:
    """Return the text whose SHA-256 is the leaf of a row."""
    last = len(row)
    while last > _LEAF_COLUMNS and row[last - 1] is None:
        last -= 1
    return _leaf_json((stream.tenant_id, stream.organization_id, stream.stream_id, shard, *row[:last]))


def leaves(stream: Stream, shard: int, rows: Sequence[Row]) -> bytes:
    """Return the leaves of rows of one stream, joined."""
    return b"".join([sha256(leaf_text(stream, shard, row)).digest() for row in rows])


def leaf_of(draft: Draft) -> bytes:
    """Return the leaf of a draft or an event."""
    stream = draft.stream
    return leaves(stream, stream.shard, [normalize(draft)])


def _text(value: Any, encode: Callable[[Any], bytes] = exact_json) -> str:
    try:
        text: str = value.text if type(value) is CanonicalObject else encode(value).decode()
    except (TypeError, ValueError) as problem:
        raise EventInvalid(f"the event holds a value that JSON cannot carry exactly: {problem}") from problem
    if "\\u0000" in text and _NUL.search(text):
        # One such row would make every JSON operator of PostgreSQL fail on it, in views over other rows too.
        raise EventInvalid(
            "the event holds a NUL character, which no text in PostgreSQL can", hint="store it as a payload"
        )
    return text
