"""A sound draft of every event type, made from what the type asks for."""

from __future__ import annotations

import itertools
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from noetl.model.event import Draft
from noetl.model.event_type import EventType
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts

SCOPE = Scope("acme", "care")
_numbers = itertools.count(1 << 50)
DRAFTS = Drafts(SCOPE, lambda: next(_numbers))
RUN = 7


def sound(kind: EventType, **fields: Any) -> Draft:
    """Make a draft with exactly what its type needs, and the fields a test wants otherwise."""
    needed: dict[str, Any] = {
        name: DRAFTS.payload() if name == "payload_ref" else 1 if name.endswith("_id") and name not in TEXT_IDS else "x"
        for name in kind.needs
    }
    if "current_index" in needed:
        needed["current_index"] = 0
    parts = {part: example(getattr(kind, part)) for part in ("meta", "context", "result")}
    stream = SCOPE.stream(f"execution/{RUN}/thing/1")
    return DRAFTS.draft(stream, kind.name, RUN, **{**needed, **parts, **fields})


TEXT_IDS = {"command_id", "shard_id", "catalog_id", "correlation_id"}


def example(kind: Any) -> Any:
    """Make a value of a struct's field type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return {field.name: example(hints[field.name]) for field in msgspec.structs.fields(kind) if field.required}
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if isinstance(kind, UnionType):
        return example(get_args(kind)[0])
    if get_origin(kind) is dict:
        return {"x": example(get_args(kind)[1])}
    if get_origin(kind) is list:
        return [example(get_args(kind)[0])]
    if get_origin(kind) is tuple:
        return [example(part) for part in get_args(kind)]
    return {int: 1, str: "x", bool: True, Any: "x"}[kind]
