"""Shared values that are too large for an event: the largest are payloads, and all of them come back."""

from __future__ import annotations

import orjson

from noetl.engine.dispatch.large_values import INLINE_BYTES, kept_small, made_whole
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.stream import Scope

SCOPE = Scope("acme", "sales")


async def test_small_values_stay_and_the_largest_become_payloads() -> None:
    store = MemoryPayloadStore()
    writes = {"a.large": "x" * 40_000, "b": [1, None], "c": {"text": "y" * 20_000}, "d": "z" * 10_000}
    kept = await kept_small(store, SCOPE, writes)
    assert (kept.writes["b"], kept.writes["c"], kept.writes["d"]) == (writes["b"], writes["c"], writes["d"])
    assert [ref.bytes for ref in kept.refs] == [40_002]
    assert len(orjson.dumps(kept.writes)) <= INLINE_BYTES
    assert await made_whole(store, SCOPE, kept.writes) == writes


async def test_what_fits_is_left_as_it_is() -> None:
    writes = {"a": "x" * 30_000, "b": {"noetl.payload": 1, "own": 2}}
    kept = await kept_small(MemoryPayloadStore(), SCOPE, writes)
    assert (kept.writes, kept.refs) == (writes, ())
    assert await made_whole(MemoryPayloadStore(), SCOPE, kept.writes) == writes
