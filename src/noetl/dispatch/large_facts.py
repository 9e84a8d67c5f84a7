"""Keeps large values out of the ledger: facts and drafts go in, the same with references in place of what is large come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.ledger.transition import Append
from noetl.model.canonical import CanonicalObject
from noetl.model.event import INLINE_LIMIT, Draft
from noetl.model.stream import Scope
from noetl.payloads.codec import JSON, encode_json
from noetl.payloads.envelope import externalize
from noetl.payloads.port import PayloadStore
from noetl.plan.fact import Fact
from noetl.plan.state import State

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
