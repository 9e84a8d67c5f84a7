"""JSON that was sent becomes a table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from noetl.errors import InputError
from noetl.model.dataset import Field
from noetl.pipelines.operators.webhook import sent_table
from noetl.pipelines.tables.column_types import arrow_type
from noetl.pipelines.tables.json_rows import json_rows, table_of, value_of

SENT: list[tuple[bytes, list[dict[str, Any]]]] = [
    (b'{"a": 1}', [{"a": 1}]),
    (b'[{"a": 1}, {"b": "x"}]', [{"a": 1}, {"b": "x"}]),
    (b"[]", []),
    (b'{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
    (b'\n{"a": 1}\r\n\r\n{"a": 2}', [{"a": 1}, {"a": 2}]),
    (b'{\n  "a": 1\n}\n', [{"a": 1}]),
]
REFUSED: list[tuple[bytes, str]] = [
    (b"", "the body is empty"),
    (b"  \n", "the body is empty"),
    (b'{"a": 1', "the body is not JSON: expecting ',' delimiter at line 1, column 8"),
    (b'{"a": 1}\n{"a" 2}', "the body is not JSON: expecting ':' delimiter at line 2, column 6"),
    (b"17", "document 1 holds a number"),
    (b'[{"a": 1}, 2]', "document 1 holds a number"),
    (b'{"a": 1}\n["x"]', "document 2 holds text"),
    (b"null", "document 1 holds nothing"),
    (b'{"a": NaN}', "NaN, which is no number of JSON"),
    (b'{"a": -Infinity}', "-Infinity, which is no number"),
    (b"\xff\xfe", "not UTF-8: byte 0"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a": ' + b"1" * 5000 + b"}", "a number that is too long"),
]


@pytest.mark.parametrize(("body", "rows"), SENT)
def test_objects_come_alone_in_a_list_or_line_by_line(body: bytes, rows: list[dict[str, Any]]) -> None:
    assert json_rows(body) == rows


@pytest.mark.parametrize(("body", "said"), REFUSED)
def test_what_is_no_list_of_objects_is_refused_with_its_place(body: bytes, said: str) -> None:
    with pytest.raises(InputError) as refused:
        json_rows(body)
    assert said in refused.value.message


def test_rows_lie_where_the_path_leads() -> None:
    body = b'{"data": {"items": [{"a": 1}, {"a": 2}]}}'
    assert json_rows(body, "data.items") == [{"a": 1}, {"a": 2}]
    with pytest.raises(InputError, match=r"data\.rows of document 1 holds nothing"):
        json_rows(body, "data.rows")


VALUES: list[tuple[str, Any, Any]] = [
    ("boolean", True, True),
    ("int", 7, 7),
    ("int", Decimal("7.0"), 7),
    ("bigint", -(2**63), -(2**63)),
    ("double", Decimal("0.5"), 0.5),
    ("double", 2, 2.0),
    ("decimal(9,2)", Decimal("1.10"), Decimal("1.10")),
    ("decimal(9,2)", "1.10", Decimal("1.10")),
    ("string", "007", "007"),
    ("string", {"a": Decimal("1.5")}, '{"a": 1.5}'),
    ("binary", "AQI=", b"\x01\x02"),
    ("date", "2026-01-31", date(2026, 1, 31)),
    ("timestamp", "2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ("timestamp", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("timestamp", "2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("timestamp_ntz", "2026-01-31T12:00:00", datetime(2026, 1, 31, 12)),  # noqa: DTZ001
    ("array<int>", [1, None], [1, None]),
    ("struct<a:int,b:string>", {"a": 1, "c": 2}, {"a": 1, "b": None}),
    ("map<string,int>", {"x": 1}, [("x", 1)]),
    ("int", None, None),
]
WRONG: list[tuple[str, Any]] = [
    ("boolean", 1),
    ("boolean", "true"),
    ("int", "7"),
    ("int", True),
    ("int", Decimal("7.5")),
    ("int", 2**31),
    ("bigint", 2**63),
    ("double", "0.5"),
    ("decimal(9,2)", Decimal("1.105")),
    ("decimal(9,2)", "one"),
    ("string", 7),
    ("string", False),
    ("binary", "not base64!"),
    ("date", "31.1.2026"),
    ("date", 20260131),
    ("timestamp", "soon"),
    ("timestamp_ntz", "2026-01-31T12:00:00Z"),
    ("array<int>", 1),
    ("array<int>", ["x"]),
    ("struct<a:int>", [1]),
    ("map<string,int>", {"x": "y"}),
]


@pytest.mark.parametrize(("kind", "value", "taken"), VALUES)
def test_a_value_is_taken_as_its_column_asks_for_it(kind: str, value: Any, taken: Any) -> None:
    found = value_of(value, arrow_type(kind), "row 1, x")
    assert (found, type(found)) == (taken, type(taken))


@pytest.mark.parametrize(("kind", "value"), WRONG)
def test_a_value_of_another_kind_is_refused_and_not_repeated(kind: str, value: Any) -> None:
    with pytest.raises(InputError, match=r"^row 1, x is .* that is no ") as refused:
        value_of(value, arrow_type(kind), "row 1, x")
    assert str(value) not in refused.value.message or len(str(value)) == 1


def test_columns_that_are_declared_are_taken_and_others_are_as_told() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    rows = [{"a": 1, "c": 9}, {"a": 2, "b": "x"}]
    assert table_of(rows, schema, others="ignore").to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert table_of(rows, schema, others="keep").column_names == ["a", "b", "c"]
    with pytest.raises(InputError, match="the rows have 'c', which is no column"):
        table_of(rows, schema, others="refuse")
    with pytest.raises(InputError, match="row 2 has no 'a', which may not be null"):
        table_of([{"a": 1}, {"b": "x"}], schema, others="ignore")


def test_without_declared_columns_types_are_those_of_the_values() -> None:
    rows = [{"a": 1, "b": Decimal("1.5"), "c": None, "d": {"e": [Decimal("2.5")]}}, {"a": 2, "f": "x"}]
    table = table_of(rows, None)
    assert table.column_names == ["a", "b", "d", "f"], "of what has no value nothing is known"
    assert table.schema.field("d").type == pa.struct([("e", pa.list_(pa.float64()))])
    with pytest.raises(InputError, match="the values of 'a' cannot be read as one type"):
        table_of([{"a": 1}, {"a": "x"}], None)
    with pytest.raises(InputError, match="cannot be read"):
        table_of(json_rows(b'{"a": "\\ud800"}'), None)


def test_rows_tell_how_they_came_if_asked_for() -> None:
    table = sent_table(b'[{"id": 1}, {"id": 2}]', {"delivery": True}, [Field("id", "int")], (), 1 << 50)
    assert [row["_row"] for row in table.to_pylist()] == [0, 1]
    assert {row["_delivery"] for row in table.to_pylist()} == {str(1 << 50)}
    assert table.to_pylist()[0]["_received_at"] == datetime(2024, 1, 4, 2, 33, 55, 456000, tzinfo=UTC)
    empty = sent_table(b"[]", {"delivery": True}, [Field("id", "int")], (), 1)
    assert empty.column_names == ["id", "_delivery", "_row", "_received_at"]
