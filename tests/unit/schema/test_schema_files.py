"""The checks over the schema's files find what is forgotten: a type, a file, a migration, a list that is out of date."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.check_schema import problems
from tools.schema_source import PARTS, filled, schema_files

from noetl.model.catalogue import rows
from noetl.runtime.postgres.migrations import SCHEMA


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """A copy of the schema's files that a test may spoil."""
    return shutil.copytree(SCHEMA, tmp_path / "schema")


def spoil(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_the_files_as_they_are_have_no_problems() -> None:
    assert list(problems()) == []
    assert [path.name for path, text in schema_files().items() if path.read_text() != text] == []


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("apply_views", "view.dropped"),
        ("apply_task", "task.retried"),
        ("apply_open_work", "frame.checkpointed"),
        ("apply_delivery", "delivery.rearmed"),
        ("change_slot", "slot.pruned"),
        ("apply_lineage", "dataset.lineage_set"),
    ],
)
def test_a_rule_that_is_forgotten_is_named(schema: Path, function: str, said: str) -> None:
    """INV-148."""
    spoil(schema / f"functions/{function}.sql", f"'{said}'", "'other.type'")
    assert any(f"no rule names {said}" in problem for problem in problems(schema))


@pytest.mark.parametrize("function", ["apply_views", "apply_people", "apply_open_work", "apply_backfill"])
def test_an_else_that_stands_for_types_is_named(schema: Path, function: str) -> None:
    """INV-148."""
    spoil(schema / f"functions/{function}.sql", "RAISE case_not_found USING MESSAGE = format(", "PERFORM format(")
    assert any(f"functions/{function}.sql" in problem and "an ELSE stands" in problem for problem in problems(schema))


def test_a_file_that_no_revision_carries_is_named(schema: Path) -> None:
    """INV-24."""
    spoil(schema / "functions/has_room.sql", "< p_limit", "<= p_limit")
    assert "functions/has_room.sql: changed since the baseline, and no migration carries it" in problems(schema)
    text = (schema / "functions/has_room.sql").read_text()
    (schema / "migrations/versions/0002_room.up.sql").write_text(f"-- One more.\n{text}")
    assert list(problems(schema)) == []


def test_a_table_that_no_revision_alters_is_named(schema: Path) -> None:
    """INV-24."""
    spoil(schema / "tables/worker.sql", "    pool ", "    rack            text,\n    pool ")
    assert "tables/worker.sql: changed since the baseline, and no migration carries it" in problems(schema)
    (schema / "migrations/versions/0002_racks.up.sql").write_text("ALTER TABLE noetl.worker ADD COLUMN rack text;\n")
    assert list(problems(schema)) == []


def test_a_file_beside_the_contents_is_named(schema: Path) -> None:
    spoil(schema / "contents.txt", "tables/worker.sql\n", "tables/nothing.sql\n")
    assert {"tables/worker.sql: is not in contents.txt", "contents.txt: there is no tables/nothing.sql"} <= set(
        problems(schema)
    )


@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_part_is_used_and_an_entry_left_out_is_written_again(name: str) -> None:
    """INV-148."""
    used = [path for path, text in schema_files().items() if f"-- begin generated: {name}\n" in text]
    assert used
    for path in used:
        text = path.read_text()
        start = text.index(f"-- begin generated: {name}\n")
        part = text[start : text.index("-- end generated", start)]
        lines = part.splitlines(keepends=True)
        assert len(lines) > 1
        assert filled(text.replace(part, "".join([lines[0], *lines[2:]]), 1)) == text


def test_every_type_with_rows_has_its_function_in_sql() -> None:
    text = (SCHEMA / "functions/applied_by.sql").read_text()
    for said in rows.types_with_rows():
        assert text.count(f"'{said}'") == 1


def test_every_declared_type_is_known_to_the_ledger() -> None:
    text = (SCHEMA / "functions/declared.sql").read_text()
    assert [said for said in rows.declared_types() if f"'{said}'" not in text] == []
