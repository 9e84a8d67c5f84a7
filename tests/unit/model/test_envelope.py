"""The envelope is declared once: what derives from it names every field, in one order, with one type."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import orjson
import pytest

from noetl.kernel.ledger.normalizer import normalize
from noetl.kernel.ledger.rows import COLUMNS, JSON_PLACES, to_events
from noetl.kernel.stream.encoding import row_body
from noetl.model.envelope import sql
from noetl.model.envelope.columns import DRAFT_COLUMNS, EVENT_COLUMNS, INLINE_FIELDS, ROW_NAMES
from noetl.model.envelope.field import (
    ID,
    INDEX,
    OBJECT,
    ORDINAL,
    REFERENCE,
    SHARD,
    TEXT,
    TIME,
    VALUE,
    VERSION,
    Field,
    Kind,
    fields_of,
)
from noetl.model.event import ACCEPTED_FIELDS, FIELDS, FIXED_FIELDS, ID_FIELDS, JSON_FIELDS, TIME_FIELDS, Draft, Event
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Stream
from noetl.spark.source.columns import POSTGRES_TYPES, SPARK_TYPES, selected

NAMES = [column.name for column in EVENT_COLUMNS]
PYTHON_TYPES: list[tuple[Kind, Any]] = [
    (ID, int), (INDEX, int), (ORDINAL, int), (VERSION, int), (SHARD, int), (TIME, datetime), (TEXT, str),
    (OBJECT, dict[str, Any]), (VALUE, Any), (REFERENCE, PayloadRef),
]  # fmt: skip
GIVEN = {
    "position": "head + n", "stream_version": "versions[n]", "ingest_time": "now_at", "shard": "p_shard",
    "tenant_id": "p_tenant", "organization_id": "p_organization", "stream_id": "own.stream_id",
}  # fmt: skip


def full_event() -> Event:
    """Return an event that has every field, each with a value of its own."""
    values = {name: _value(number, field) for number, (name, field) in enumerate(FIELDS.items(), 1)}
    return Event(**values)


def _value(number: int, field: Field) -> Any:
    if field.kind is REFERENCE:
        digest = f"{number:064x}"
        return PayloadRef(
            uri=payload_uri("acme", "care", digest), sha256=digest, media_type="x", bytes=1, stored_sha256=digest
        )
    if field.kind is TIME:
        return datetime(2026, 5, number % 28 + 1, tzinfo=UTC)
    if field.kind is TEXT:
        return f"text {number}"
    return {"number": number} if field.kind in (OBJECT, VALUE) else number


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_has_the_type_of_its_kind(name: str) -> None:
    (field,) = (field for field in msgspec.structs.fields(Event) if field.name == name)
    plain = get_args(field.type)[0]
    assert [kind for kind, python in PYTHON_TYPES if plain in (python, python | None)].count(FIELDS[name].kind) == 1


def test_the_declaration_has_every_field_in_order() -> None:
    assert tuple(FIELDS) == Event.__struct_fields__ == (*Draft.__struct_fields__, *ACCEPTED_FIELDS)
    assert fields_of(Draft) == {name: FIELDS[name] for name in Draft.__struct_fields__}


def test_a_field_without_its_declaration_is_refused() -> None:
    class Bare(msgspec.Struct):
        name: str

    with pytest.raises(AttributeError):
        fields_of(Bare)


def test_ids_and_times_are_pinned() -> None:
    assert {
        "event_id", "execution_id", "causation_id", "parent_execution_id", "stage_id", "frame_id", "loop_id",
    } == ID_FIELDS  # fmt: skip
    assert {"event_time", "ingest_time"} == TIME_FIELDS


def test_where_an_event_stands_and_whose_it_is_no_upcaster_changes() -> None:
    assert set(FIXED_FIELDS) == {
        "event_id", "tenant_id", "organization_id", "execution_id", "stream_id", "stream_version", "shard", "position",
        "schema_name",
    }  # fmt: skip


def test_every_field_has_a_column_and_every_reference_one_for_its_digest() -> None:
    assert set(NAMES) == {*FIELDS, "payload_sha256", "fields_sha256"}
    assert len(NAMES) == len(set(NAMES))
    assert INLINE_FIELDS == ("meta", "context", "result", "current_item")


def test_a_draft_lacks_what_the_stream_and_the_ledger_give() -> None:
    lacking = {column.name for column in EVENT_COLUMNS} - set(ROW_NAMES)
    assert lacking == {"tenant_id", "organization_id", "stream_id", *ACCEPTED_FIELDS} == GIVEN.keys()


def test_a_row_holds_each_value_in_the_column_of_its_name() -> None:
    event = full_event()
    row = dict(zip(ROW_NAMES, normalize(event), strict=True))
    for column in DRAFT_COLUMNS:
        value = getattr(event, column.field)
        if column.is_digest:
            assert row[column.name] == value.sha256
        elif column.sql == "json":
            assert orjson.loads(row[column.name]) == msgspec.to_builtins(value)
        else:
            assert row[column.name] == value


def test_what_was_written_reads_back_as_the_same_event() -> None:
    event = full_event()
    row = {
        **{name: getattr(event, name) for name in GIVEN},
        **dict(zip(ROW_NAMES, normalize(event), strict=True)),
    }
    names = COLUMNS.split(", ")
    assert to_events([[row[name] for name in names]]) == [event]
    assert {names[place] for place in JSON_PLACES} == {column.name for column in EVENT_COLUMNS if column.sql == "json"}


def test_the_body_of_a_streamed_fact_has_every_column_but_what_the_ledger_gives() -> None:
    event = full_event()
    body = orjson.loads(row_body(Stream(event.tenant_id, event.organization_id, event.stream_id), event.shard, event))
    assert body.keys() == {column.name for column in EVENT_COLUMNS if column.given_by != "ledger"}
    assert {name: body[name] for name in JSON_FIELDS} == {
        name: msgspec.to_builtins(getattr(event, name)) for name in JSON_FIELDS
    }


def test_the_columns_in_spark_have_the_types_that_hold_those_of_the_ledger() -> None:
    holds = {"bigint": "bigint", "integer": "int", "smallint": "int", "timestamptz": "timestamp"}
    assert {
        column.name: holds.get(column.sql, "string") for column in EVENT_COLUMNS if not column.is_digest
    } == SPARK_TYPES
    assert selected(("shard", "schema_version", "position", "event_time", "status", "meta")) == (
        "shard::integer, schema_version, position, event_time, status, meta::text"
    )
    assert POSTGRES_TYPES["shard"] == "integer"


def test_definitions_of_columns_say_type_collation_and_whether_they_may_be_null() -> None:
    lines = sql.table_columns()
    assert [line.split()[0] for line in lines] == NAMES
    for line in (
        "execution_id        bigint NOT NULL",
        'tenant_id           text COLLATE "C" NOT NULL',
        "aggregate_id        text NOT NULL",
        'payload_sha256      text COLLATE "C"',
        "ingest_time         timestamptz NOT NULL",
        "fields_ref          json",
    ):
        assert line in lines


def test_new_events_carry_their_place_and_the_row_of_a_draft() -> None:
    assert sql.new_event_attributes() == (
        "append integer", "ordinal integer", *(f"{column.name} {column.sql}" for column in DRAFT_COLUMNS),
    )  # fmt: skip


def test_the_columns_of_an_insert_are_pinned() -> None:
    assert ", ".join(sql.insert_columns()) == (
        "execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id, parent_execution_id, "
        "stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id, organization_id, stream_id, "
        "aggregate_type, aggregate_id, event_type, schema_name, producer, correlation_id, idempotency_key, catalog_id, "
        "node_name, node_type, status, command_id, shard_id, payload_sha256, fields_sha256, error, meta, context, "
        "result, current_item, payload_ref, fields_ref"
    )


def test_an_insert_gives_each_column_the_value_of_its_name() -> None:
    values = dict(zip(sql.insert_columns(), sql.insert_values("e", **GIVEN), strict=True))
    assert values == {name: GIVEN.get(name, f"e.{name}") for name in NAMES}


def test_a_whole_row_gives_what_it_has_itself() -> None:
    numbered = {name: GIVEN[name] for name in ("position", "stream_version", "ingest_time", "shard")}
    values = sql.insert_values("r", whole=True, **numbered)
    assert values == tuple(numbered.get(name, f"r.{name}") for name in NAMES)


@pytest.mark.parametrize("missing", GIVEN)
def test_a_new_event_lacks_what_nobody_gives(missing: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != missing}
    with pytest.raises(ValueError, match=f"missing for {missing}$"):
        sql.insert_values("e", **given)


def test_what_the_producer_says_may_be_checked_on_its_way() -> None:
    values = sql.insert_values("e", **GIVEN, event_type="noetl.declared(e.event_type)")
    assert [value for value in values if "event_type" in value] == ["noetl.declared(e.event_type)"]


def test_a_column_that_no_event_has_is_not_given() -> None:
    with pytest.raises(ValueError, match="no columns no_column"):
        sql.insert_values("e", **GIVEN, no_column="1")
