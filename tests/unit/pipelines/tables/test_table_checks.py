"""Checks of tables, as Spark would answer them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from noetl.errors import InputError
from noetl.language.dag.model import Check
from noetl.pipelines.tables.checks import checked

NOW = datetime.now(UTC)
ROWS = pa.table({"id": [1, 2, 2, None], "a": ["x", "y", None, "z"], "at": [NOW - timedelta(hours=1)] * 4})


@pytest.mark.parametrize(
    ("check", "violations", "detail"),
    [
        ({"kind": "not_null", "columns": ("a",)}, 1, "1 rows are null"),
        ({"kind": "not_null", "columns": ("at",)}, 0, ""),
        ({"kind": "unique", "columns": ("id",)}, 1, "1 rows have a key that another row has"),
        ({"kind": "unique", "columns": ("id", "a")}, 0, ""),
        ({"kind": "range", "columns": ("id",), "min": 2}, 1, "1 rows are out of range"),
        ({"kind": "range", "columns": ("id",), "max": 1}, 2, "2 rows are out of range"),
        ({"kind": "set", "columns": ("a",), "values": ("x", "y")}, 1, "1 rows have a value that is not allowed"),
        ({"kind": "row_count", "min": 5}, 1, "4 rows, at least 5 expected"),
        ({"kind": "row_count", "max": 3}, 1, "4 rows, at most 3 expected"),
        ({"kind": "row_count", "min": 4, "max": 4}, 0, ""),
        ({"kind": "freshness", "columns": ("at",), "max_age_seconds": 60.0}, 1, "no row is younger than 60 s"),
        ({"kind": "freshness", "columns": ("at",), "max_age_seconds": 7200.0}, 0, ""),
        ({"kind": "sql", "sql": "SELECT * FROM output WHERE id > 1"}, 2, "2 rows were returned by the query"),
    ],
)
def test_a_check_counts_what_breaks_it(check: dict[str, Any], violations: int, detail: str) -> None:
    (result,) = checked(ROWS, None, [Check(**check)])
    assert (result.violations, result.passed, result.detail) == (violations, not violations, detail)


def test_only_promises_about_all_rows_look_at_what_stands() -> None:
    new = pa.table({"id": [5]})
    checks = [Check(kind="unique", columns=("id",)), Check(kind="range", columns=("id",), min=5)]
    unique, in_range = checked(new, pa.table({"id": [1, 5]}), checks)
    assert (unique.violations, in_range.violations) == (1, 0)


def test_no_rows_are_not_fresh() -> None:
    (result,) = checked(ROWS.slice(0, 0), None, [Check(kind="freshness", columns=("at",), max_age_seconds=60.0)])
    assert (result.passed, result.detail) == (False, "there are no rows")


def test_a_query_that_cannot_be_run_fails_and_says_why() -> None:
    (result,) = checked(ROWS, None, [Check(kind="sql", sql="SELECT nope FROM output", severity="warn")])
    assert (result.passed, result.severity) == (False, "warn")
    assert "nope" in result.detail


def test_a_query_cannot_reach_files() -> None:
    (result,) = checked(ROWS, None, [Check(kind="sql", sql="SELECT * FROM read_csv('/etc/passwd')")])
    assert (result.passed, "disabled" in result.detail) == (False, True)


def test_a_check_of_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="names the column 'b'; there are only a, at, id"):
        checked(ROWS, None, [Check(kind="not_null", columns=("b",))])
