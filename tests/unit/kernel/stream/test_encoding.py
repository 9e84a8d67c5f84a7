from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import Corrupt
from noetl.kernel.ledger.normalizer import normalize
from noetl.kernel.stream.encoding import decode, encode, message_of
from noetl.model.canonical import SAFE_INTEGER, CanonicalObject, canonical_json
from noetl.model.event import Event, from_json
from noetl.model.payload_ref import PayloadRef, payload_uri

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
IDS = st.integers(1, 2**63 - 1)
TIMES = st.datetimes(timezones=st.just(UTC))
LEAVES = (
    st.none() | st.booleans() | st.integers(-SAFE_INTEGER, SAFE_INTEGER) | TEXT | st.sampled_from([0.5, -1e-9, 2.5e30])
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)
REFERENCES = st.builds(
    lambda digest, rows: PayloadRef(
        uri=payload_uri("acme", "care", digest),
        sha256=digest,
        media_type="application/json",
        bytes=7,
        stored_sha256=digest,
        rows=rows,
    ),
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.none() | st.integers(0, 2**40),
)
WORDS = st.sampled_from(["null", "true", "12", "1.5", "", "worker", "2026-01-01T00:00:00Z"])
EVENTS = st.builds(
    Event,
    event_id=IDS,
    tenant_id=WORDS,
    organization_id=WORDS,
    execution_id=IDS,
    stream_id=TEXT,
    aggregate_type=WORDS,
    aggregate_id=WORDS,
    event_type=TEXT,
    schema_name=TEXT,
    schema_version=st.integers(1, 99),
    event_time=TIMES,
    producer=WORDS,
    causation_id=st.none() | IDS,
    correlation_id=st.none() | WORDS,
    idempotency_key=st.none() | TEXT,
    parent_execution_id=st.none() | IDS,
    node_name=st.none() | WORDS,
    status=st.none() | WORDS,
    stage_id=st.none() | IDS,
    frame_id=st.none() | IDS,
    loop_id=st.none() | IDS,
    command_id=st.none() | WORDS,
    shard_id=st.none() | WORDS,
    current_index=st.none() | st.integers(0, 2**40),
    current_item=VALUES,
    payload_ref=st.none() | REFERENCES,
    fields_ref=st.none() | REFERENCES,
    meta=OBJECTS,
    context=OBJECTS,
    result=OBJECTS,
    error=st.none() | TEXT,
    stream_version=IDS,
    shard=st.integers(0, 15),
    position=IDS,
    ingest_time=TIMES,
)


@given(EVENTS)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    back = decode(encode(event))
    assert back == event
    assert normalize(back) == normalize(event)


@given(EVENTS)
def test_the_text_is_the_json_of_an_event_as_everywhere(event: Event) -> None:
    assert from_json(orjson.loads(encode(event))) == event


@given(OBJECTS)
def test_json_fields_stand_in_their_canonical_text(context: dict[str, object]) -> None:
    assert (b'"context":' + canonical_json(context) in encode(event_with(context=context))) == bool(context)


def test_text_that_is_known_to_be_canonical_is_taken_as_it_is() -> None:
    known = CanonicalObject(a=1)
    known.text = '{"a":1}'
    assert b'"meta":{"a":1}' in encode(event_with(meta=known))


@pytest.mark.parametrize("item", [0, "", False, [], {}])
def test_an_item_that_is_nothing_much_is_not_left_out(item: object) -> None:
    assert decode(encode(event_with(current_item=item))).current_item == item


def test_ids_are_strings_and_times_have_microseconds() -> None:
    said = orjson.loads(encode(event_with(event_id=2**62 + 1)))
    assert said["event_id"] == "4611686018427387905"
    assert said["event_time"] == "2026-01-01T00:00:00.000000Z"


def test_a_message_says_whose_event_it_carries() -> None:
    event = event_with(shard=9)
    message = message_of(event)
    assert (message.tenant_id, message.execution_id, message.shard) == ("acme", 7, 9)
    assert message.message_id == "acme/care/5"
    assert decode(message.body) == event


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b'{"event_id":"x"}'])
def test_what_is_no_event_is_called_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(body)


def event_with(**fields: object) -> Event:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    plain = Event(
        5,
        "acme",
        "care",
        7,
        "execution/7",
        "execution",
        "7",
        "playbook.initialized",
        "s",
        1,
        at,
        "tests",
        stream_version=1,
        shard=3,
        position=1,
        ingest_time=at,
    )
    return msgspec.structs.replace(plain, **fields)
