"""Every invariant of the envelope, broken one at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from noetl.errors import EventInvalid
from noetl.model.catalogue import BY_NAME, EVENT_TYPES
from noetl.model.event import Draft
from noetl.model.event_type import EventType
from noetl.model.stream import Scope
from noetl.model.validate import validate

from .sound import DRAFTS, RUN, SCOPE, sound

every_type = pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.name)
OTHER_REF = DRAFTS.payload("ab" * 32, stored_sha256="cd" * 32)


def problems_of(*drafts: Draft) -> str:
    with pytest.raises(EventInvalid) as refused:
        validate(drafts[0].stream, drafts)
    return refused.value.message


def item(**fields: Any) -> Draft:
    return msgspec.structs.replace(DRAFTS.loop_item(RUN, 8, 0), **fields)


def business(**fields: Any) -> Draft:
    return DRAFTS.business("dataset/x", RUN, **fields)


@every_type
def test_a_sound_draft_of_every_type_is_accepted(kind: EventType) -> None:
    draft = sound(kind)
    validate(draft.stream, [draft])


@every_type
def test_each_needed_field_is_missed(kind: EventType) -> None:
    for name in kind.needs:
        assert f"{name} is mandatory" in problems_of(sound(kind, **{name: None}))


@every_type
def test_each_needed_part_is_missed(kind: EventType) -> None:
    for part in ("meta", "context", "result"):
        if getattr(sound(kind), part):
            assert f"{part}: Object missing required field" in problems_of(sound(kind, **{part: {}}))


@pytest.mark.parametrize("kind", [kind for kind in EVENT_TYPES if kind.retried], ids=lambda kind: kind.name)
def test_a_retried_transition_needs_a_key(kind: EventType) -> None:
    for key in (None, ""):
        assert "idempotency_key is mandatory" in problems_of(sound(kind, idempotency_key=key))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"event_id": 0}, "event_id and execution_id must be positive"),
        ({"event_id": 2**63}, "event_id and execution_id must be positive"),
        ({"execution_id": -1}, "event_id and execution_id must be positive"),
        ({"execution_id": RUN + 1}, f"execution_id {RUN + 1} is not the stream's"),
        ({"event_time": datetime(2026, 1, 1)}, "event_time must be an aware time in UTC"),  # noqa: DTZ001
        ({"event_time": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "event_time must be an aware"),
        ({"producer": ""}, "producer and aggregate_id must not be empty"),
        ({"aggregate_id": ""}, "producer and aggregate_id must not be empty"),
        ({"aggregate_type": "frame"}, "aggregate_type must be 'loop'"),
        ({"idempotency_key": ""}, "idempotency_key must not be empty"),
        ({"idempotency_key": "k" * 513}, "idempotency_key must have at most 512 characters"),
        ({"schema_name": "noetl.other"}, "schema must be noetl.loop.item version 1"),
        ({"schema_version": 2}, "schema must be noetl.loop.item version 1"),
        ({"event_type": "loop.itm"}, "unknown event type; did you mean 'loop.item'?"),
        ({"event_type": "zzzzzzz"}, "unknown event type; your own types start with 'business.'"),
        ({"causation_id": 0}, "causation_id must be a positive 64-bit number"),
        ({"parent_execution_id": 2**63}, "parent_execution_id must be a positive 64-bit number"),
        ({"stage_id": -1}, "stage_id must be a positive 64-bit number"),
        ({"frame_id": 0}, "frame_id must be a positive 64-bit number"),
        ({"loop_id": 0}, "loop_id must be a positive 64-bit number"),
        ({"current_index": -1}, "current_index must be a 64-bit number from 0"),
        ({"current_index": 2**63}, "current_index must be a 64-bit number from 0"),
        ({"node_name": "n" * 513}, "node_name must have at most 512 characters"),
        ({"command_id": "c" * 513}, "command_id must have at most 512 characters"),
        ({"error": "e" * 65537}, "error must have at most 65536 characters"),
        ({"error": "\x00"}, "error holds a NUL character or a lone surrogate"),
        ({"node_name": "a\ud800"}, "node_name holds a NUL character or a lone surrogate"),
        ({"status": "\x00"}, "status holds a NUL character or a lone surrogate"),
        ({"payload_ref": msgspec.structs.replace(OTHER_REF, sha256="AB" * 32)}, "payload_ref.sha256 is not a SHA-256"),
        ({"payload_ref": msgspec.structs.replace(OTHER_REF, stored_sha256="x")}, "payload_ref.stored_sha256 is not"),
        (
            {"payload_ref": msgspec.structs.replace(OTHER_REF, uri="/tmp/x")},
            "payload_ref.uri is not the durable object",
        ),
        ({"payload_ref": msgspec.structs.replace(OTHER_REF, bytes=-1)}, "cannot be negative"),
        ({"fields_ref": msgspec.structs.replace(OTHER_REF, rows=-1)}, "cannot be negative"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_a_broken_invariant_is_named(fields: dict[str, Any], problem: str) -> None:
    stream = item().stream
    broken = item(**fields)
    with pytest.raises(EventInvalid) as refused:
        validate(stream, [broken])
    assert f"event 0 ({broken.event_type}): " in refused.value.message
    assert problem in refused.value.message


@pytest.mark.parametrize(
    "fields",
    [{"error": "e" * 65536}, {"node_name": "n" * 512}, {"current_index": 2**63 - 1}],
    ids=lambda each: next(iter(each)),
)
def test_the_largest_sound_values_are_accepted(fields: dict[str, Any]) -> None:
    draft = item(**fields, payload_ref=OTHER_REF)
    validate(draft.stream, [draft])


@pytest.mark.parametrize("field", ["tenant_id", "organization_id", "stream_id"])
def test_a_draft_belongs_to_the_stream_it_is_appended_to(field: str) -> None:
    stray = item(**{field: "elsewhere"})
    with pytest.raises(EventInvalid, match="not those of the stream appended to"):
        validate(item().stream, [stray])


def test_a_payload_of_another_organization_is_refused() -> None:
    """INV-13, INV-22."""
    draft = DRAFTS.loop_item(RUN, 8, 0, payload_ref=OTHER_REF)
    foreign = msgspec.structs.replace(draft, tenant_id="globex")
    with pytest.raises(EventInvalid, match="in this tenant and organization"):
        validate(foreign.stream, [foreign])


def test_an_append_needs_an_event() -> None:
    with pytest.raises(EventInvalid, match="at least one event"):
        validate(item().stream, [])


def test_an_unsound_stream_is_refused_each_time() -> None:
    stream = Scope("a b", "care").stream("x y")
    for _ in range(2):
        with pytest.raises(EventInvalid, match=r"tenant_id 'a b'.*stream_id 'x y'"):
            validate(stream, [])


def test_two_events_of_an_append_share_neither_id_nor_key() -> None:
    first = item(idempotency_key="k")
    said = problems_of(first, first)
    assert "two events carry the same event_id" in said
    assert "two events carry the same idempotency_key" in said


def test_the_events_of_an_append_share_their_execution() -> None:
    stray = DRAFTS.business("dataset/x", RUN + 1)
    assert problems_of(business(), stray) == "the events of one append must carry one execution_id"


def test_all_problems_are_told_at_once_with_the_event_they_are_in() -> None:
    said = problems_of(item(), item(producer="", node_name=None), item(loop_id=None))
    assert said == (
        "event 1 (loop.item): producer and aggregate_id must not be empty; event 1 (loop.item): node_name is mandatory;"
        " event 2 (loop.item): loop_id is mandatory"
    )


def test_a_business_event_names_its_own_schema_and_aggregate() -> None:
    draft = business(aggregate_type="invoice", schema_name="acme.invoice", schema_version=7)
    validate(draft.stream, [draft])


@pytest.mark.parametrize("fields", [{"schema_name": ""}, {"schema_version": 0}, {"schema_version": 2**31}], ids=str)
def test_a_business_event_needs_a_schema(fields: dict[str, Any]) -> None:
    assert "schema_name and schema_version (from 1) are mandatory" in problems_of(business(**fields))


def test_a_field_of_the_wrong_type_is_named() -> None:
    draft = sound(BY_NAME["loop.started"], meta={"collection_size": "many", "mode": "sequential"})
    assert "meta: Expected `int | null`, got `str` - at `$.collection_size`" in problems_of(draft)


def test_other_fields_may_stand_beside_those_of_the_schema() -> None:
    draft = sound(BY_NAME["frame.abandoned"], meta={"attempt": 2, "note": "free"})
    validate(draft.stream, [draft])


def test_more_streams_than_are_remembered_are_still_checked() -> None:
    for number in range(4200):
        draft = DRAFTS.business(f"dataset/{number}", RUN)
        validate(draft.stream, [draft])
    with pytest.raises(EventInvalid, match="stream_id"):
        validate(SCOPE.stream("x y"), [])
    assert draft.event_time.tzinfo is UTC
