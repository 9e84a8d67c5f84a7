"""Results of playbooks become tables."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from noetl.model.dataset import Field
from noetl.pipelines.operators.playbook import records, table_of
from noetl.pipelines.worker.in_process import OperatorFailed


def test_records_are_found_under_a_path_and_lists_give_one_each() -> None:
    results = [{"data": {"items": [{"a": 1}, {"a": 2}]}}, {"data": {"items": {"a": 3}}}, {"data": None}, None]
    assert list(records(results, ["data", "items"])) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_result_that_is_no_record_is_a_record_of_its_value() -> None:
    assert list(records([7, [8, None, "x"]], [])) == [{"value": 7}, {"value": 8}, {"value": "x"}]


def test_columns_are_those_that_occur_in_the_order_they_are_met() -> None:
    table = table_of([{"b": 1}, {"a": "x", "b": 2}, {"c": None}], ())
    assert table.to_pydict() == {"b": [1, 2, None], "a": [None, "x", None], "c": [None, None, None]}
    assert table.schema.field("c").type == pa.string()


def test_values_of_several_shapes_become_text() -> None:
    assert table_of([{"a": 1}, {"a": {"b": 2}}, {"a": "x"}], ()).column("a").to_pylist() == ["1", '{"b":2}', "x"]


def test_declared_columns_are_cast_and_others_left_out() -> None:
    declared = (Field("day", "date"), Field("at", "timestamp"), Field("text", "string"), Field("missing", "int"))
    table = table_of([{"day": "2026-01-02", "at": "2026-01-02T03:04:05Z", "text": 7, "other": 1}], declared)
    assert table.to_pylist() == [
        {"day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "text": "7", "missing": None}
    ]


def test_a_value_that_is_not_of_its_declared_type_fails_for_good() -> None:
    with pytest.raises(OperatorFailed, match="column 'n' cannot be read as int64") as caught:
        table_of([{"n": "seven"}], (Field("n", "bigint"),))
    assert not caught.value.retryable


def test_no_rows_are_a_table_of_the_declared_columns() -> None:
    assert table_of([], (Field("n", "bigint"),)).schema == pa.schema([("n", pa.int64())])
    assert table_of([], ()).num_rows == 0


def test_types_that_a_result_tells_beside_its_rows_are_kept() -> None:
    types: dict[str, str] = {}
    results = [{"data": {"rows": [{"a": "1.50", "b": "x"}], "types": {"a": "decimal"}}}, {"data": {"rows": []}}]
    rows = list(records(results, ["data", "rows"], types))
    table = table_of(rows, (), types)
    assert (types, str(table.schema.field("a").type), table.schema.field("b").type) == (
        {"a": "decimal"},
        "decimal128(38, 2)",
        pa.string(),
    )
    assert table_of([{"a": "NaN"}], (), types).column("a").to_pylist() == ["NaN"], "what has no such type is text"


def test_a_declared_decimal_is_read_from_text() -> None:
    table = table_of([{"n": "12.50"}, {"n": 3}], (Field("n", "decimal(12,2)"),))
    assert [str(value) for value in table.column("n").to_pylist()] == ["12.50", "3.00"]
    with pytest.raises(OperatorFailed, match="more than 2 digits after the point"):
        table_of([{"n": "12.505"}], (Field("n", "decimal(12,2)"),))
