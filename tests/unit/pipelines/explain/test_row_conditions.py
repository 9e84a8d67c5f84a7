"""Conditions on rows: comparisons of columns with values are read, everything else is refused with a hint."""

from __future__ import annotations

import pytest

from noetl.errors import InputError
from noetl.model.dataset import Field, FileEntry
from noetl.pipelines.explain.conditions import Condition, may_hold, read_conditions

SCHEMA = (Field("id", "bigint"), Field("Region", "string"), Field("day", "date"), Field("amount", "decimal(10,2)"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("id = 7", [Condition("id", "=", ("7",))]),
        ("7 < id", [Condition("id", ">", ("7",))]),
        ("id = -7 AND region <> 'no''rth'", [Condition("id", "=", ("-7",)), Condition("Region", "<>", ("no'rth",))]),
        (
            "(\"Region\" in ('a', 'b')) and (id >= 1)",
            [Condition("Region", "IN", ("a", "b")), Condition("id", ">=", ("1",))],
        ),
        ("day between DATE '2026-01-01' and '2026-01-31'", [Condition("day", "BETWEEN", ("2026-01-01", "2026-01-31"))]),
        ("amount = 12.50", [Condition("amount", "=", ("12.50",))]),
        ("region IS NULL AND id IS NOT NULL", [Condition("Region", "IS NULL"), Condition("id", "IS NOT NULL")]),
    ],
)
def test_comparisons_are_read(text: str, found: list[Condition]) -> None:
    assert list(read_conditions(text, SCHEMA)) == found


@pytest.mark.parametrize(
    "text",
    [
        "id = 7 OR 1 = 1",
        "NOT id = 7",
        "id = other",
        "id = (SELECT 1)",
        "id IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "upper(region) = 'A'",
        "id + 1 = 7",
        "id = 7; DROP TABLE x",
        "id = 7 LIMIT 1",
        "id = 7 UNION SELECT 1",
        "id = 7 ORDER BY id",
        "id = 7 GROUP BY id",
        "t.id = 7",
        "region LIKE '%'",
        "true",
        "",
        "id =",
        "read_text('/etc/passwd') = 'x'",
        "id = length(read_blob('/etc/passwd'))",
        "id = 7 -- and more\n OR true",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_conditions(text, SCHEMA)


def test_a_column_that_is_not_there_is_named_with_one_that_is() -> None:
    with pytest.raises(InputError, match="no column 'amout'") as told:
        read_conditions("amout = 1", SCHEMA)
    assert told.value.hint == "did you mean amount?"


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("id = 5", True),
        ("id = 4", False),
        ("id < 5", False),
        ("id <= 5", True),
        ("id > 9", False),
        ("id >= 9", True),
        ("id IN (1, 2)", False),
        ("id BETWEEN 1 AND 4", False),
        ("id = 5.5", True),
        ("id IS NULL", False),
        ("region = 'c'", False),
        ("region = 'a'", True),
        ("day = '2026-02-01'", False),
        ("day = '1.2.2026'", True),
        ("amount = 1000000", True),
    ],
)
def test_files_are_passed_over_by_their_statistics_alone(text: str, possible: bool) -> None:
    stats = {
        "id": {"min": 5, "max": 9, "nulls": 0},
        "Region": {"min": "a", "max": "b"},
        "day": {"min": "2026-01-01", "max": "2026-01-31"},
        "amount": {"min": "1.00", "max": "2.00"},
    }
    entry = FileEntry(path="x", bytes=1, rows=3, sha256="0", stats=stats)
    assert may_hold(entry, read_conditions(text, SCHEMA), SCHEMA) is possible
