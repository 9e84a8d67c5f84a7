"""Shared values that rows set and that are too large for the event of their frame: writes go in and come back whole.

A large value is a payload, and a note of its reference stands in its place; an `artifact.stored` beside the frame's
commit names the payload, so that it is kept as long as the event is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.codec import JSON, decode_json, encode_json
from noetl.payloads.port import PayloadStore

INLINE_BYTES: Final = 32_768
"""Bytes of shared values, as JSON, that stand in the event of a frame's commit."""
_NOTE: Final = "noetl.payload"


class Kept(msgspec.Struct, frozen=True):
    """Writes that fit into an event, and the payloads that some of their values are in."""

    writes: dict[str, Any]
    refs: tuple[PayloadRef, ...] = ()


async def kept_small(store: PayloadStore, scope: Scope, writes: dict[str, Any]) -> Kept:
    """Return writes of which the largest values, as many as need be, are payloads."""
    sizes = {path: len(orjson.dumps(value, default=str)) for path, value in writes.items()}
    total = sum(sizes.values())
    small, refs = dict(writes), list[PayloadRef]()
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        if total <= INLINE_BYTES:
            break
        ref = await store.store(scope, encode_json(writes[path]), JSON)
        small[path] = {_NOTE: msgspec.to_builtins(ref)}
        refs.append(ref)
        total -= sizes[path] - len(orjson.dumps(small[path]))
    return Kept(small, tuple(refs))


async def made_whole(store: PayloadStore, scope: Scope, writes: Mapping[str, Any]) -> dict[str, Any]:
    """Return writes with the values that are payloads put back."""
    return {path: await _value(store, scope, value) for path, value in writes.items()}


def noted(value: Any) -> Any:
    """Return what stands in the note in place of a large value; None where the value stands itself."""
    return value[_NOTE] if isinstance(value, Mapping) and value.keys() == {_NOTE} else None


async def _value(store: PayloadStore, scope: Scope, value: Any) -> Any:
    note = noted(value)
    return value if note is None else decode_json(await store.fetch(scope, msgspec.convert(note, PayloadRef)))
