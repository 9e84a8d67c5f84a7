"""Values that travelled as JSON are read back as the types they were of."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.engine.tools.plain import plain
from noetl.pipelines.tables.column_types import arrow_type
from noetl.pipelines.tables.json_columns import CannotReadError, carried_column, column_of

_ANY: dict[str, st.SearchStrategy[Any]] = {
    "decimal(12,2)": st.decimals(min_value=-(10**9), max_value=10**9, places=2),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(),
    "array<decimal(12,2)>": st.lists(st.decimals(min_value=0, max_value=10**9, places=2)),
    "struct<at:timestamp>": st.fixed_dictionaries({"at": st.datetimes(timezones=st.just(UTC))}),
}


@given(st.sampled_from(sorted(_ANY)).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(_ANY[kind] | st.none()))))
def test_what_a_value_was_it_is_again(case: tuple[str, list[Any]]) -> None:
    kind, values = case
    column = column_of([plain(value) for value in values], arrow_type(kind))
    assert column.type == arrow_type(kind)
    assert column.to_pylist() == values


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1.005", "decimal(12,2)"),
        ("NaN", "decimal(12,2)"),
        (True, "decimal(12,2)"),
        ("99999999999", "decimal(12,2)"),
        ("seven", "bigint"),
        ("9223372036854775808", "bigint"),
        ("not base64!", "binary"),
        ("infinity", "timestamp"),
        ("2026-01-02T03:04:05+02:00", "timestamp_ntz"),
        (5, "timestamp"),
        ("x", "array<bigint>"),
    ],
)
def test_what_is_not_of_the_type_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(CannotReadError):
        column_of([value], arrow_type(kind))


def test_numbers_and_texts_of_them_are_decimals_and_zones_are_heeded() -> None:
    assert column_of([1, "2.50", 0.1], pa.decimal128(12, 2)).to_pylist() == [
        Decimal(1),
        Decimal("2.50"),
        Decimal("0.10"),
    ]
    moment = column_of(["2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05"], arrow_type("timestamp")).to_pylist()
    assert moment == [datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)]
    assert str(column_of(["NaN", "-Infinity", 1], pa.float64()).to_pylist()) == "[nan, -inf, 1.0]"


@pytest.mark.parametrize(
    ("values", "told", "kind"),
    [
        (["1.50", None, "12.25"], "decimal", "decimal128(38, 2)"),
        (["1.5", "12.125"], "decimal", "decimal128(38, 18)"),
        (["1" * 30 + ".5", "0.12345"], "decimal", "decimal128(38, 5)"),
        ([None, None], "decimal", "decimal128(38, 0)"),
        ([["1.5"], None], "array<decimal>", "list<item: decimal128(38, 1)>"),
        (["12.5"], "decimal(12,2)", "decimal128(12, 2)"),
        (["NaN"], "decimal", None),
        (["1" * 40], "decimal", None),
        (["infinity"], "timestamp", None),
        (["x"], "nonsense", None),
    ],
)
def test_a_type_that_a_result_tells_is_taken_where_all_values_have_it(
    values: list[Any], told: str, kind: str | None
) -> None:
    column = carried_column(values, told)
    assert (None if column is None else str(column.type)) == kind
