"""The schema registry: what is exported is what the catalogue says, and no published schema changes unnoticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from noetl.cli.schema import schema
from noetl.errors import InputError
from noetl.model.catalogue import BY_NAME, EVENT_TYPES
from noetl.model.catalogue.frames import FrameCommitted
from noetl.model.registry import INDEX, check, registry_files, render_events, required_fields, schema_files

REPOSITORY = Path(__file__).parents[3]


def changed(name: str, **fields: Any) -> list[Any]:
    return [msgspec.structs.replace(kind, **fields) if kind.name == name else kind for kind in EVENT_TYPES]


def test_the_schemas_in_the_repository_are_current() -> None:
    folder = REPOSITORY / "schemas"
    stored = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.json")}
    assert check(stored) == []
    assert stored == registry_files(stored)


def test_the_reference_page_in_the_repository_is_current() -> None:
    assert (REPOSITORY / "docs" / "reference" / "events.md").read_text() == render_events()


def test_every_type_has_a_schema_and_a_line_in_the_reference() -> None:
    page, schemas = render_events(), schema_files()
    for kind in EVENT_TYPES:
        assert f"{kind.name}/{kind.version}.json" in schemas
        assert f"| `{kind.name}` | {kind.version} | {kind.sentence} |" in page


def test_every_reference_within_a_schema_leads_somewhere() -> None:
    found = 0
    for text in schema_files().values():
        document = json.loads(text)
        for name in _references(document):
            found += 1
            assert name in document["$defs"]
    assert found >= 2


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].removeprefix("#/$defs/")] if "$ref" in node else []
        return own + [name for value in node.values() for name in _references(value)]
    return [name for value in node for name in _references(value)] if isinstance(node, list) else []


def test_a_schema_changed_under_the_same_version_is_drift() -> None:
    stored = registry_files({})
    found = check(stored, changed("step.entered", needs=("node_name", "status")))
    assert [(drift.path, drift.kind) for drift in found] == [("step.entered/1.json", "changed")]


def test_a_raised_version_keeps_the_schema_of_the_old_one() -> None:
    stored = registry_files({})
    types = changed("step.entered", needs=("node_name", "status"), version=2)
    assert [(drift.path, drift.kind) for drift in check(stored, types)] == [("step.entered/2.json", "missing")]
    after = registry_files(stored, types)
    assert after["step.entered/1.json"] == stored["step.entered/1.json"]
    assert check(after, types) == []


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda files: files.update({"loop.done/0.json": "{}"}), "unlisted"),
        (lambda files: files.pop("loop.done/1.json"), "missing"),
        (lambda files: files.update({"loop.done/1.json": "{}"}), "edited"),
        (lambda files: files.update({INDEX: "nonsense"}), "unlisted"),
    ],
)
def test_a_damaged_registry_is_drift(damage: Any, kind: str) -> None:
    stored = registry_files({})
    damage(stored)
    assert kind in {drift.kind for drift in check(stored)}


def test_required_fields_reach_into_the_json_parts() -> None:
    assert BY_NAME["frame.committed"].meta is FrameCommitted
    assert required_fields(BY_NAME["frame.committed"]) == ["stage_id", "frame_id", "meta.attempt", "meta.row_count"]


def test_an_exported_directory_checks_clean_and_a_changed_file_exits_1(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(schema, ["export", str(tmp_path)]).exit_code == 0
    assert run(schema, ["check", str(tmp_path)]).exit_code == 0
    (tmp_path / "loop.done" / "1.json").write_text("{}")
    answer = run(schema, ["check", str(tmp_path), "--json"])
    assert answer.exit_code == 1
    assert {drift["kind"] for drift in json.loads(answer.stdout)} == {"changed", "edited"}


def test_an_export_does_not_replace_a_published_schema_unasked(tmp_path: Path) -> None:
    run = CliRunner().invoke
    run(schema, ["export", str(tmp_path)])
    (tmp_path / "loop.done" / "1.json").write_text("{}")
    refused = run(schema, ["export", str(tmp_path)])
    assert isinstance(refused.exception, InputError)
    assert (tmp_path / "loop.done" / "1.json").read_text() == "{}"
    assert run(schema, ["export", str(tmp_path), "--replace"]).exit_code == 0
    assert run(schema, ["check", str(tmp_path)]).exit_code == 0


def test_a_misspelt_type_is_answered_with_the_nearest() -> None:
    answer = CliRunner().invoke(schema, ["show", "frame.comitted"])
    assert isinstance(answer.exception, InputError)
    assert answer.exception.hint == "did you mean frame.committed?"


def test_the_list_of_types_as_json_names_what_each_needs() -> None:
    answer = CliRunner().invoke(schema, ["events", "--json"])
    listed = {one["type"]: one for one in json.loads(answer.stdout)}
    assert listed.keys() == BY_NAME.keys()
    assert listed["loop.done"]["once_per"] == "loop_id"
    assert listed["playbook.failed"]["ends"] is True
