"""Keeps large values out of the ledger: they are stored as payloads, and references take their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.plan.fact import Fact
from noetl.engine.plan.state import State
from noetl.kernel.ledger.transition import Append
from noetl.kernel.payloads.codec import JSON, decode_json, encode_json
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.canonical import CanonicalObject
from noetl.model.event import INLINE_LIMIT, Draft
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_encode = msgspec.json.Encoder(enc_hook=str).encode


async def with_stored_rows(payloads: PayloadStore, scope: Scope, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Store the collections of loops; each fact gets the reference of its own."""
    if all(fact.rows is None for fact in facts):
        return facts
    stored = []
    for fact in facts:
        if fact.rows is not None:
            ref = await payloads.store(scope, encode_json(fact.rows), JSON, rows=len(fact.rows))
            fact = msgspec.structs.replace(fact, payload_ref=ref, rows=None)
        stored.append(fact)
    return tuple(stored)


async def slimmed(payloads: PayloadStore, appends: tuple[Append, ...]) -> tuple[Append, ...]:
    """Store what drafts say at too great length beside the ledger."""
    if not any(_is_large(draft) for append in appends for draft in append.drafts):
        return appends
    slim = []
    for append in appends:
        drafts = [await externalize(payloads, draft) if _is_large(draft) else draft for draft in append.drafts]
        slim.append(append._replace(drafts=drafts))
    return tuple(slim)


def with_rows(state: State, facts: Sequence[Fact]) -> State:
    """Return a state that knows where the rows of its loops are, as the events say."""
    for fact in facts:
        step = fact.node_name
        if fact.event_type == "step.entered" and fact.payload_ref is not None and step in state.active:
            run = msgspec.structs.replace(state.active[step], rows_ref=fact.payload_ref)
            state = msgspec.structs.replace(state, active={**state.active, step: run})
    return state


def _is_large(draft: Draft) -> bool:
    """Tell whether the fields a fact may say at length come near to what a row may carry."""
    return (_size(draft.context) + _size(draft.result)) * 2 >= INLINE_LIMIT


def _size(fields: dict[str, Any]) -> int:
    if not fields:
        return 0
    return len(fields.text.encode()) if type(fields) is CanonicalObject else len(_encode(fields))


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
