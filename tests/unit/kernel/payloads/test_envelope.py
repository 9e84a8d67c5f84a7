"""Large fields of events move to the payload store and come back exactly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import EventInvalid
from noetl.kernel.payloads.envelope import FIELDS, externalize, inline_size, resolve
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.canonical import canonical_json
from noetl.model.event import Draft, Event

NOW = datetime(2026, 5, 16, 12, tzinfo=UTC)


def _event(event_type: str = "business.order.placed", **fields: Any) -> Event:
    return Event(
        event_id=1,
        tenant_id="acme",
        organization_id="care",
        execution_id=7,
        stream_id="execution/7",
        aggregate_type="business_object",
        aggregate_id="a",
        event_type=event_type,
        schema_name=f"noetl.{event_type}",
        schema_version=1,
        event_time=NOW,
        producer="test",
        stream_version=1,
        shard=0,
        position=1,
        ingest_time=NOW,
        **fields,
    )


async def _moved(store: MemoryPayloadStore, event: Draft) -> Any:
    assert event.fields_ref is not None
    assert event.fields_ref.media_type == FIELDS
    return msgspec.json.decode(store.kept[event.fields_ref.uri.split("tenant/")[1].replace("/org/", "/")][0])


async def test_a_small_event_is_left_alone() -> None:
    store = MemoryPayloadStore()
    event = _event(context={"a": 1})
    assert await externalize(store, event, inline_size(event)) is event
    assert store.kept == {}


async def test_the_largest_fields_move_first_and_no_more_than_needed() -> None:
    store = MemoryPayloadStore()
    event = _event(context={"small": "s", "large": "l" * 5000}, result={"middle": "m" * 300}, current_item="i" * 400)
    slim = await externalize(store, event, 1000)
    assert await _moved(store, slim) == {"context": {"large": "l" * 5000}}
    assert slim.context == {"small": "s"}
    assert (slim.result, slim.current_item) == (event.result, event.current_item)
    slim = await externalize(store, event, 500)
    assert await _moved(store, slim) == {"context": {"large": "l" * 5000}, "current_item": "i" * 400}


async def test_what_the_schema_requires_stays_in_the_row() -> None:
    store = MemoryPayloadStore()
    tally = {"total": 3, "completed": 3, "failed": 0}
    result = {"status": "ok", "context": tally, "rows": ["x" * 100] * 50}
    slim = await externalize(store, _event("loop.done", result=result), 300)
    assert slim.result == {"status": "ok", "context": tally}
    assert await _moved(store, slim) == {"result": {"rows": ["x" * 100] * 50}}


async def test_an_event_that_cannot_be_made_small_says_which_part_is_too_large() -> None:
    store = MemoryPayloadStore()
    with pytest.raises(EventInvalid, match="largest part is meta with 2010 bytes"):
        await externalize(store, _event(meta={"note": "n" * 1999}, context={"c": "x" * 5000}), 1000)
    assert store.kept == {}


async def test_a_value_json_cannot_carry_is_refused_with_its_place() -> None:
    with pytest.raises(EventInvalid, match=r"context\.rate"):
        await externalize(MemoryPayloadStore(), _event(context={"rate": float("nan")}), 10)


async def test_an_externalized_event_is_not_externalized_twice() -> None:
    store = MemoryPayloadStore()
    slim = await externalize(store, _event(context={"c": "x" * 5000}), 1000)
    assert await externalize(store, slim, 1000) is slim
    with pytest.raises(EventInvalid, match="already"):
        await externalize(store, slim, 10)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
_objects = st.dictionaries(st.text(max_size=8), _values, max_size=6)


@given(context=_objects, result=_objects, item=_values, threshold=st.integers(61, 400))
async def test_resolving_gives_back_exactly_what_was_externalized(
    context: dict[str, Any], result: dict[str, Any], item: Any, threshold: int
) -> None:
    store = MemoryPayloadStore()
    event = _event(context=context, result=result, current_item=item, meta={"m": 1})
    slim = await externalize(store, event, threshold)
    assert inline_size(slim) <= threshold
    assert isinstance(slim, Event)
    back = await resolve(store, slim)
    assert back == event
    parts = (event.context, event.result, event.current_item)
    assert canonical_json([back.context, back.result, back.current_item]) == canonical_json(list(parts))


async def test_what_rows_are_made_from_stays_in_the_row() -> None:
    """INV-153. Rows of open work are written with the event, by the database, which reads no payloads."""
    store = MemoryPayloadStore()
    context, result = {"set": {"last": "l" * 500}}, {"errors": ["e" * 300], "notes": ["n" * 300]}
    slim = await externalize(store, _event("frame.committed", context=context, result=result), 800)
    assert slim.context == context
    assert (await _moved(store, slim)).keys() == {"result"}
