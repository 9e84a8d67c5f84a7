"""Turns a draft into the row that stands in the ledger, the same in every write path, and digests what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from blake3 import blake3

from noetl.errors import EventInvalid
from noetl.model.canonical import CanonicalObject, canonical_json, exact_json
from noetl.model.event import INLINE_LIMIT, Draft

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_ref_json = msgspec.json.Encoder(order="sorted").encode

Row = tuple[Any, ...]


def normalize(draft: Draft) -> Row:
    """Return the row of a draft in the order of `noetl.append`, its JSON canonical; refuse what is too large."""
    meta = _text(draft.meta) if draft.meta else None
    context = _text(draft.context) if draft.context else None
    result = _text(draft.result) if draft.result else None
    item = None if draft.current_item is None else _text(draft.current_item)
    size = len(meta or "") + len(context or "") + len(result or "") + len(item or "")
    # Counting characters is enough for the common small case; bytes are counted only when it gets close.
    if (
        size * 4 > INLINE_LIMIT
        and sum(len(part.encode()) for part in (meta, context, result, item) if part) > INLINE_LIMIT
    ):
        raise EventInvalid(
            f"event {draft.event_id} ({draft.event_type}) carries more than {INLINE_LIMIT} bytes of JSON",
            hint="externalize large fields to the payload store first",
        )
    payload, fields = draft.payload_ref, draft.fields_ref
    return (
        draft.execution_id,
        draft.event_id,
        draft.event_time,
        draft.causation_id,
        draft.parent_execution_id,
        draft.stage_id,
        draft.frame_id,
        draft.loop_id,
        draft.current_index,
        draft.schema_version,
        draft.aggregate_type,
        draft.aggregate_id,
        draft.event_type,
        draft.schema_name,
        draft.producer,
        draft.correlation_id,
        draft.idempotency_key,
        draft.catalog_id,
        draft.node_name,
        draft.node_type,
        draft.status,
        draft.command_id,
        draft.shard_id,
        None if payload is None else payload.sha256,
        None if fields is None else fields.sha256,
        draft.error,
        meta,
        context,
        result,
        item,
        None if payload is None else _storable(_ref_json, payload),
        None if fields is None else _storable(_ref_json, fields),
    )


_CONTENT_FROM = 4
"""Where the columns begin that say what happened; before them stand ids and times that differ between two tries."""
_PRODUCER, _CORRELATION = 14, 15


def content_digest(stream_id: str, rows: Sequence[Row]) -> bytes:
    """Digest what an append says, leaving out what differs between two tries of it: ids, times, producer and causes."""
    said = [
        [
            str(value) if type(value) is int else value
            for place, value in enumerate(row)
            if place >= _CONTENT_FROM and place not in (_PRODUCER, _CORRELATION)
        ]
        for row in rows
    ]
    return blake3(canonical_json([stream_id, said])).digest()


def _text(value: Any) -> str:
    return _without_nul(value.text) if type(value) is CanonicalObject else _storable(exact_json, value)


def _storable(encode: Callable[[Any], bytes], value: Any) -> str:
    try:
        text = encode(value).decode()
    except (TypeError, ValueError) as problem:
        raise EventInvalid(f"the event holds a value that JSON cannot carry exactly: {problem}") from problem
    return _without_nul(text)


def _without_nul(text: str) -> str:
    if "\\u0000" in text and _NUL.search(text):
        # One such row would make every JSON operator of PostgreSQL fail on it, in views over other rows too.
        raise EventInvalid(
            "the event holds a NUL character, which no text in PostgreSQL can", hint="store it as a payload"
        )
    return text
