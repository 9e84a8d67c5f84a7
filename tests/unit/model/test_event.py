"""The event envelope: JSON and back for any event, and times that mean one instant only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.model.event import (
    ID_FIELDS,
    Draft,
    Event,
    from_json,
    is_utc,
    parse_time,
    time_text,
    to_json,
)
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, Stream
from noetl.testing.samples.drafts import PRODUCER, Drafts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ids = st.integers(1, 2**63 - 1)
texts = st.text(max_size=20)
times = st.integers(0, 253_402_300_799_000_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
refs = st.builds(
    PayloadRef,
    uri=texts,
    sha256=texts,
    media_type=texts,
    bytes=st.integers(0, 2**53 - 1),
    stored_sha256=texts,
    encoding=st.sampled_from(["identity", "zstd", "aes256gcm", "zstd+aes256gcm"]),
    rows=st.none() | st.integers(0, 2**40),
    schema_digest=st.none() | texts,
)


def _strategy(name: str, kind: object) -> st.SearchStrategy[Any]:
    if name in {"meta", "context", "result"}:
        return objects
    if name == "current_item":
        return values
    if name.endswith("_ref"):
        return st.none() | refs
    if name in {"event_time", "ingest_time"}:
        return times
    known = {int: ids, str: texts}
    return known[kind] if kind in known else st.none() | known[kind.__args__[0]]  # type: ignore[index, attr-defined]


events = st.builds(Event, **{name: _strategy(name, kind) for name, kind in get_type_hints(Event).items()})


@given(events)
def test_any_event_comes_back_from_json_text(event: Event) -> None:
    text = msgspec.json.encode(to_json(event))
    assert from_json(msgspec.json.decode(text)) == event


@given(events)
def test_ids_are_strings_in_json_and_absent_fields_are_left_out(event: Event) -> None:
    fields = to_json(event)
    assert all(isinstance(fields[name], str) for name in ID_FIELDS & fields.keys())
    assert None not in fields.values()
    for name in ("meta", "context", "result"):
        assert (name in fields) == bool(getattr(event, name))


def test_the_json_of_an_event_is_pinned() -> None:
    draft = Drafts(Scope("acme", "care"), iter([348912345678901248]).__next__).loop_item(7, 8, 0, result={"ok": True})
    event = Event(
        **{name: getattr(draft, name) for name in Draft.__struct_fields__},
        stream_version=1,
        shard=3,
        position=9,
        ingest_time=datetime(2026, 5, 16, 12, 34, 56, 7, tzinfo=UTC),
    )
    assert to_json(event) == {
        "event_id": "348912345678901248",
        "tenant_id": "acme",
        "organization_id": "care",
        "execution_id": "7",
        "stream_id": "execution/7/loop/8",
        "aggregate_type": "loop",
        "aggregate_id": "8",
        "event_type": "loop.item",
        "schema_name": "noetl.loop.item",
        "schema_version": 1,
        "event_time": "2026-08-20T19:33:05.687000Z",
        "producer": PRODUCER,
        "node_name": "each",
        "loop_id": "8",
        "current_index": 0,
        "current_item": {"row": 0},
        "result": {"ok": True},
        "stream_version": 1,
        "shard": 3,
        "position": 9,
        "ingest_time": "2026-05-16T12:34:56.000007Z",
    }


def test_a_draft_knows_its_stream() -> None:
    drafts = Drafts(Scope("acme", "care"), lambda: 1 << 50)
    assert drafts.execution(7).stream == Stream("acme", "care", "execution/7")


@pytest.mark.parametrize("missing", ["event_id", "ingest_time", "position"])
def test_json_without_a_mandatory_field_is_no_event(missing: str) -> None:
    fields = {"event_id": "1", "ingest_time": "2026-05-16T12:34:56Z", "position": 1}
    fields.pop(missing)
    with pytest.raises(msgspec.ValidationError):
        from_json(fields)


@given(times)
def test_a_time_comes_back_from_its_text(moment: datetime) -> None:
    assert parse_time(time_text(moment)) == moment


@pytest.mark.parametrize(
    "text", ["2026-05-16T12:34:56Z", "2026-05-16T14:34:56+02:00", "2026-05-16T12:34:56.000000+00:00"]
)
def test_a_time_with_any_offset_is_read_as_utc(text: str) -> None:
    moment = parse_time(text)
    assert moment == datetime(2026, 5, 16, 12, 34, 56, tzinfo=UTC)
    assert is_utc(moment)


def test_a_time_of_another_zone_is_printed_in_utc() -> None:
    moment = datetime(2026, 5, 16, 14, 34, 56, tzinfo=timezone(timedelta(hours=2)))
    assert time_text(moment) == "2026-05-16T12:34:56.000000Z"
    assert not is_utc(moment)


def test_a_time_without_an_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="no offset"):
        parse_time("2026-05-16T12:34:56")
    assert not is_utc(datetime(2026, 5, 16))  # noqa: DTZ001 - that is the point
