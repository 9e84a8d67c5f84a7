"""The declared envelope and the migrated database have the same columns, in the same order, of the same types."""

from __future__ import annotations

import re

import psycopg
import pytest

from noetl.model.envelope import sql
from noetl.model.envelope.columns import DRAFT_COLUMNS, EVENT_COLUMNS

pytestmark = pytest.mark.service

NAMES = [column.name for column in EVENT_COLUMNS]

_ATTRIBUTES = b"""
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, coalesce(c.collname = 'C', false),
       a.atthasdef OR a.attgenerated <> '' OR a.attidentity <> ''
FROM pg_attribute AS a LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_FUNCTIONS = b"SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'noetl'::regnamespace"
_INSERT = re.compile(r"INSERT INTO noetl\.(?:pending_)?event \((.*?)\)\s+SELECT\s+(.*?)\s+FROM ", re.DOTALL)
_WRITES = re.compile(r"INSERT INTO noetl\.(?:pending_)?event\b")
_TAKEN = re.compile(r"\w+\.(\w+)|noetl\.\w+\(\w+\.(\w+)\)")
_SIZES = b"""
SELECT pg_get_constraintdef(oid) FROM pg_constraint
WHERE conname = 'event_references_not_data' AND conrelid IN ('noetl.event'::regclass, 'noetl.pending_event'::regclass)
"""


def attributes(url: str, relation: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(_ATTRIBUTES, (relation,)).fetchall()


def printed(kind: str) -> str:
    return "timestamp with time zone" if kind == "timestamptz" else kind


@pytest.mark.parametrize("table", ["noetl.event", "noetl.pending_event"])
def test_a_table_of_events_has_the_columns_of_the_envelope(owner_url: str, table: str) -> None:
    """INV-149."""
    assert attributes(owner_url, table) == [
        (column.name, printed(column.sql), column.required, column.bytewise, False) for column in EVENT_COLUMNS
    ]


def test_all_known_events_are_read_by_the_same_columns(owner_url: str) -> None:
    found = attributes(owner_url, "noetl.known_event")
    assert [row[:2] for row in found] == [(column.name, printed(column.sql)) for column in EVENT_COLUMNS]


def test_a_new_event_has_its_place_and_the_row_of_a_draft(owner_url: str) -> None:
    found = attributes(owner_url, "noetl.new_event")
    assert [row[:2] for row in found] == [
        ("append", "integer"),
        ("ordinal", "integer"),
        *((column.name, printed(column.sql)) for column in DRAFT_COLUMNS),
    ]


def test_every_insert_of_events_names_all_columns_and_gives_each_its_own_value(owner_url: str) -> None:
    """INV-149."""
    with psycopg.connect(owner_url) as connection:
        found = connection.execute(_FUNCTIONS).fetchall()
    functions = [(name, re.sub("--.*", "", source)) for name, source in found]
    written = sum(len(_WRITES.findall(source)) for _, source in functions)
    inserts = [(name, *found) for name, source in functions for found in _INSERT.findall(source)]
    assert len(inserts) == written > 0
    for function, columns, values in inserts:
        assert items(columns) == NAMES, function
        for column, value in zip(EVENT_COLUMNS, items(values), strict=True):
            taken = _TAKEN.fullmatch(value)
            assert taken is not None or column.given_by != "producer", (function, column.name, value)
            assert taken is None or column.name in taken.groups(), (function, column.name, value)


def test_a_row_is_held_to_the_limit_of_its_data(owner_url: str) -> None:
    with psycopg.connect(owner_url) as connection:
        found = connection.execute(_SIZES).fetchall()
    assert len(found) == 2
    for (definition,) in found:
        assert plain(definition) == plain(f"CHECK ({sql.size_check()})")


def test_the_generated_definitions_make_the_same_tables(owner_url: str) -> None:
    with psycopg.connect(owner_url) as connection:
        connection.execute(f"CREATE TABLE noetl.made ({', '.join(sql.table_columns())})".encode())
        connection.execute(f"CREATE TYPE noetl.made_new AS ({', '.join(sql.new_event_attributes())})".encode())
    assert attributes(owner_url, "noetl.made") == attributes(owner_url, "noetl.event")
    assert attributes(owner_url, "noetl.made_new") == attributes(owner_url, "noetl.new_event")


def items(text: str) -> list[str]:
    """Split a list at its commas; no expression in it has any of its own."""
    return [" ".join(item.split()) for item in text.split(",")]


def plain(condition: str) -> str:
    """Print a condition without the brackets that PostgreSQL adds."""
    return re.sub(r"[()\s]", "", condition).lower()
