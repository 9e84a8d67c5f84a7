"""The JSON Schema and the parser are made from the same tables: they accept and refuse the same structure."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from noetl.language.grammar.problems import Problems
from noetl.language.grammar.yaml_reader import read
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.parse import parse
from noetl.language.playbook.schema import playbook_schema

CORPUS = Path(__file__).parents[3] / "playbooks"
STRUCTURAL = frozenset(
    {"wrong_value", "missing_field", "unknown_field", "removed_field", "misplaced_field", "unknown_kind"}
)
BEYOND = frozenset({
    "policy_jump_without_to", "policy_retry_field", "postgres_base64", "workbook_without_name",
    "artifact_without_reference", "result_fetch_without_reference", "keychain_needs", "mcp_incomplete",
    "container_without_image",
})  # fmt: skip
"""Rules that hold between fields, which the schema leaves to the parser."""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = playbook_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize(
    "file", sorted([*CORPUS.glob("good/*.yaml"), *CORPUS.glob("warned/*.yaml")]), ids=lambda file: file.stem
)
def test_a_playbook_that_parses_is_valid(file: Path, validator: Draft202012Validator) -> None:
    node = read(file.read_text(), Problems())
    assert node is not None
    assert [error.message for error in validator.iter_errors(node.plain())] == []


@pytest.mark.parametrize("file", sorted(CORPUS.glob("legacy/*.yaml")), ids=lambda file: file.stem)
def test_an_old_spelling_becomes_one_that_is_valid(file: Path, validator: Draft202012Validator) -> None:
    tree = parse(file.read_text()).tree
    assert [error.message for error in validator.iter_errors(tree.plain())] == []


def _wrong() -> list[Path]:
    files = sorted(CORPUS.glob("bad/*.yaml"))
    return [
        file
        for file in files
        if file.stem not in BEYOND and file.read_text().split("\n")[0].split(" ")[-1] in STRUCTURAL
    ]


@pytest.mark.parametrize("file", _wrong(), ids=lambda file: file.stem)
def test_a_playbook_of_the_wrong_structure_is_not_valid(file: Path, validator: Draft202012Validator) -> None:
    node = read(file.read_text(), Problems())
    assert node is not None
    assert not validator.is_valid(node.plain())


def test_every_key_is_described() -> None:
    def bare(schema: object, path: str) -> list[str]:
        if isinstance(schema, list):
            return [found for item in schema for found in bare(item, path)]
        if not isinstance(schema, dict):
            return []
        found = []
        properties = schema.get("properties", {})
        for name, inner in properties.items() if "if" not in path else ():
            found += [] if inner.get("description") else [f"{path}.{name}"]
        for key, inner in schema.items():
            found += bare(inner, f"{path}.{key}")
        return found

    assert bare(playbook_schema(), "") == []


def test_a_further_kind_is_valid_with_any_fields() -> None:
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "x"},
        "workflow": [{"step": "a", "tool": {"kind": "fax", "number": 5}}],
    }
    assert Draft202012Validator(playbook_schema(["fax"])).is_valid(document)
    assert not Draft202012Validator(playbook_schema()).is_valid(document)
    assert set(KINDS) <= {name.removesuffix("_task") for name in playbook_schema()["$defs"]}
