"""The JSON Schema and the parser are made from the same tables: they take and refuse the same structure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.unit.language.dag.test_fields import REFUSED, TAKEN
from tests.unit.language.dag.writing import dag

from noetl.language.dag.grammar import json_schema
from noetl.language.dag.starter import starter_files
from noetl.language.grammar.problems import Problems
from noetl.language.grammar.yaml_reader import read

STRUCTURAL = frozenset({"unknown_field", "reserved_field"})


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize(("field", "fields", "fact", "value"), TAKEN)
def test_what_parses_is_valid(
    field: str, fields: dict[str, Any], fact: str, value: object, validator: Draft202012Validator
) -> None:
    document = json.loads(dag({"name": "it", **fields}, publish=["up"]))
    assert [error.message for error in validator.iter_errors(document)] == []


@pytest.mark.parametrize(("field", "fields", "code"), [one for one in REFUSED if one[2] in STRUCTURAL])
def test_what_has_the_wrong_structure_is_not_valid(
    field: str, fields: dict[str, Any], code: str, validator: Draft202012Validator
) -> None:
    assert not validator.is_valid(json.loads(dag({"name": "it", "sql": "SELECT 1 AS a", **fields})))


def test_the_config_of_an_operator_is_described(validator: Draft202012Validator) -> None:
    wrong = {"name": "it", "operator": "range_splitter", "inputs": ["up"], "config": {"chunk_size": "big"}}
    assert not validator.is_valid(json.loads(dag(wrong)))
    assert validator.is_valid(json.loads(dag(wrong | {"config": {"chunk_size": 5}})))


def test_the_starter_is_valid(validator: Draft202012Validator) -> None:
    node = read(starter_files("shop")["dag.yaml"], Problems())
    assert node is not None
    assert validator.is_valid(node.plain())


def test_every_key_is_described() -> None:
    def bare(schema: object, path: str) -> list[str]:
        if isinstance(schema, list):
            return [found for item in schema for found in bare(item, path)]
        if not isinstance(schema, dict):
            return []
        found = []
        for name, inner in schema.get("properties", {}).items() if "allOf" not in path else ():
            found += [] if inner.get("description") else [f"{path}.{name}"]
        for key, inner in schema.items():
            found += bare(inner, f"{path}.{key}")
        return found

    assert bare(json_schema(), "") == []
