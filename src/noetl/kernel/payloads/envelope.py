"""Large fields of an event: a draft goes in, a draft whose row is small enough comes out, and the way back.

What moves is recorded by `fields_ref`; the event means the same with its fields in the row or in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noetl.errors import EventInvalid
from noetl.kernel.payloads.codec import decode_json, encode_json
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.catalogue import event_type
from noetl.model.envelope.columns import INLINE_FIELDS
from noetl.model.event import INLINE_LIMIT, Draft, Event
from noetl.model.event_type import EventType
from noetl.model.stream import Scope

FIELDS = "application/vnd.noetl.fields+json"
"""Canonical JSON of `{"context": {...}, "result": {...}, "current_item": ...}`, each only if something moved."""


_IN_ROWS: Final[Mapping[str, frozenset[str]]] = {
    "stage.opened": frozenset({"frame_policy"}),
    "frame.checkpointed": frozenset({"cursor"}),
    **dict.fromkeys(("frame.committed", "frame.failed", "loop.shard.done", "loop.shard.failed"), frozenset({"set"})),
}
"""Keys of the context that are optional and never move: rows that are written with the event are made from them."""


class _Part(NamedTuple):
    """Something that could move: a key of context or result, or the current item whole."""

    size: int
    field: str
    key: str | None


def inline_size(draft: Draft) -> int:
    """Return how many bytes of canonical JSON the draft's free fields take in its row."""
    return len(_encoded(draft, ", ".join(INLINE_FIELDS), _inline(draft)))


async def externalize(store: PayloadStore, draft: Draft, threshold: int = INLINE_LIMIT) -> Draft:
    """Move the largest free fields of a draft to the payload store until its row takes at most `threshold` bytes.

    Fields that the event type's schema requires or rows of open work are made from, and `meta`, stay in the row; if these
    alone are too large, EventInvalid says which.
    """
    size = inline_size(draft)
    if size <= threshold:
        return draft
    if draft.fields_ref is not None:
        raise EventInvalid(f"{draft.event_type}: {size} bytes stay in the row, and its other fields moved already")
    chosen: list[_Part] = []
    for part in sorted(_movable(draft), key=lambda part: (-part.size, part.field, part.key or "")):
        chosen.append(part)
        size -= part.size
        if size <= threshold:
            break
    moved, slim = _split(draft, chosen)
    left = inline_size(slim)
    if left > threshold:
        raise EventInvalid(
            f"{draft.event_type}: {left} bytes must stay in the row, the limit is {threshold}; {_largest(slim)}",
            hint="store large data as a payload and put its reference into payload_ref",
        )
    ref = await store.store(_scope(draft), _encoded(draft, "fields", moved), FIELDS)
    return msgspec.structs.replace(slim, fields_ref=ref)


async def resolve(store: PayloadStore, event: Event) -> Event:
    """Put the moved fields of an event back; an event without any is returned as it is."""
    if event.fields_ref is None:
        return event
    return with_fields(event, decode_json(await store.fetch(_scope(event), event.fields_ref)))


def with_fields(event: Event, moved: dict[str, Any]) -> Event:
    """Return the event with the fields that had moved, and without their reference."""
    changed: dict[str, Any] = {
        field: {**getattr(event, field), **moved[field]} for field in ("context", "result") if field in moved
    }
    # What Spark reads for folds of ours has no current item, which none of them looks at.
    if "current_item" in moved and hasattr(event, "current_item"):
        changed["current_item"] = moved["current_item"]
    return msgspec.structs.replace(event, fields_ref=None, **changed)


def _movable(draft: Draft) -> list[_Part]:
    kind = event_type(draft.event_type)
    parts = [
        # A key's own text and colon leave the row with it; the comma is not counted, so the estimate stays above.
        _Part(len(_encoded(draft, f"{field}.{key}", {key: value})) - 2, field, key)
        for field in ("context", "result")
        for key, value in getattr(draft, field).items()
        if key not in _required(kind, field) and not (field == "context" and key in _IN_ROWS.get(draft.event_type, ()))
    ]
    if draft.current_item is not None and not (kind and "current_item" in kind.needs):
        parts.append(
            _Part(len(_encoded(draft, "current_item", draft.current_item)) - len("null"), "current_item", None)
        )
    return parts


def _required(kind: EventType | None, field: str) -> frozenset[str]:
    if kind is None:
        return frozenset()
    return frozenset(entry.encode_name for entry in msgspec.structs.fields(getattr(kind, field)) if entry.required)


def _split(draft: Draft, chosen: list[_Part]) -> tuple[dict[str, Any], Draft]:
    moved: dict[str, Any] = {}
    slim: dict[str, Any] = {"context": dict(draft.context), "result": dict(draft.result)}
    for _, field, key in chosen:
        if key is None:
            moved[field] = draft.current_item
            slim[field] = None
        else:
            moved.setdefault(field, {})[key] = slim[field].pop(key)
    return moved, msgspec.structs.replace(draft, **slim)


def _largest(draft: Draft) -> str:
    sizes = {name: len(encode_json(value)) for name, value in _inline(draft).items()}
    name = max(sizes, key=lambda name: sizes[name])
    return f"the largest part is {name} with {sizes[name]} bytes"


def _inline(draft: Draft) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in INLINE_FIELDS}


def _encoded(draft: Draft, what: str, value: object) -> bytes:
    try:
        return encode_json(value)
    except (TypeError, ValueError) as problem:
        raise EventInvalid(f"{draft.event_type}: {what} cannot be written as JSON: {problem}") from problem


def _scope(draft: Draft) -> Scope:
    return Scope(draft.tenant_id, draft.organization_id)
