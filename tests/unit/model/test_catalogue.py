"""The catalogue: every type says what happened in one sentence, asks for fields that exist, and exports its schema."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from noetl.model.catalogue import BY_NAME, ENDING, EVENT_TYPES, event_type
from noetl.model.envelope.columns import ENVELOPE_SCHEMA, MANDATORY
from noetl.model.event import Event, to_json
from noetl.model.event_type import EventType

from .sound import sound

every_type = pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.name)
KEYWORDS = {
    "$schema", "$id", "$ref", "$defs", "title", "description", "type", "properties", "required", "additionalProperties",
    "pattern", "format", "minimum", "const", "enum", "anyOf", "items", "default",
    "prefixItems", "minItems", "maxItems", "propertyNames",
}  # fmt: skip
PAST = re.compile(
    r"\b(was|were|began|ended|asked|failed|took|cancelled|recorded|has ended|have ended|is done|ran out|cannot go on"
    r"|are worked off|is no longer kept)\b"
)


@every_type
def test_a_type_says_in_one_sentence_what_happened(kind: EventType) -> None:
    assert re.fullmatch(r"[A-Z][^.]*\.", kind.sentence)
    assert PAST.search(kind.sentence), kind.sentence


@every_type
def test_a_type_is_named_by_noun_and_past_participle(kind: EventType) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z_]+){1,2}", kind.name)
    if kind.name != "loop.item":
        assert re.search(r"(ed|done|skipped|swept|ready|read|rolled_back|_set)$", kind.name), kind.name


@every_type
def test_a_type_asks_for_fields_of_the_envelope(kind: EventType) -> None:
    fields = set(Event.__struct_fields__)
    assert set(kind.needs) <= fields
    assert kind.once_per in (None, *kind.needs)
    assert kind.version >= 1


def test_names_are_unique_and_can_be_looked_up() -> None:
    assert len(BY_NAME) == len(EVENT_TYPES)
    for kind in EVENT_TYPES:
        assert event_type(kind.name) is kind


def test_only_executions_playbooks_and_workflows_end_an_execution() -> None:
    assert {name.split(".")[0] for name in ENDING} == {"execution", "playbook", "workflow"}
    assert {kind.name for kind in EVENT_TYPES if kind.ends_execution} == ENDING


def test_the_facts_that_stand_once_are_those_the_database_keeps_single() -> None:
    assert {kind.name: kind.once_per for kind in EVENT_TYPES if kind.once_per} == {
        "command.issued": "command_id",
        "loop.done": "loop_id",
        "loop.fanin.completed": "loop_id",
    }


def test_any_name_under_business_is_a_type_of_the_users_own() -> None:
    kind = event_type("business.invoice.posted")
    assert kind is not None
    assert (kind.name, kind.aggregate, kind.retried) == ("business.invoice.posted", "business_object", False)


@pytest.mark.parametrize("name", ["business.", "business", "invoice.posted", "", "loop.Item"])
def test_any_other_name_is_no_type(name: str) -> None:
    assert event_type(name) is None


def test_the_envelope_schema_has_every_field_of_an_event() -> None:
    assert set(ENVELOPE_SCHEMA) == set(Event.__struct_fields__)
    required = {field.name for field in msgspec.structs.fields(Event) if field.required}
    assert set(MANDATORY) == required - {"stream_version", "shard", "position", "ingest_time"}


@every_type
def test_the_schema_of_a_type_is_json_schema(kind: EventType) -> None:
    schema = kind.json_schema()
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema
    assert schema["$id"] == f"noetl:schema:{kind.name}:{kind.version}"
    assert schema["description"] == kind.sentence
    assert schema["properties"]["event_type"] == {"const": kind.name}
    assert len(schema["required"]) == len(set(schema["required"]))
    assert set(schema["required"]) >= {*MANDATORY, *kind.needs}
    assert ("idempotency_key" in schema["required"]) == kind.retried
    check(schema, schema)


@every_type
def test_a_sound_draft_has_what_its_schema_requires_and_nothing_else(kind: EventType) -> None:
    schema = kind.json_schema()
    fields = to_json(sound(kind))
    assert set(schema["required"]) <= fields.keys() <= schema["properties"].keys()
    for part in ("meta", "context", "result"):
        assert set(schema["properties"][part].get("required", [])) <= fields.get(part, {}).keys()


def check(schema: Any, root: dict[str, Any]) -> None:
    """Check that each part uses known keywords soundly and that every reference leads somewhere."""
    assert set(schema) <= KEYWORDS, set(schema) - KEYWORDS
    assert set(schema.get("required", [])) <= set(schema.get("properties", {}))
    if "pattern" in schema:
        re.compile(schema["pattern"])
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
    inner = [part for name in ("properties", "$defs") for part in schema.get(name, {}).values()]
    inner += [*schema.get("anyOf", []), *schema.get("prefixItems", [])]
    inner += [schema[name] for name in ("additionalProperties", "items") if isinstance(schema.get(name), dict)]
    for part in inner:
        check(part, root)
