"""Answers as text and bytes: nothing is lost that JSON, CSV or Arrow can hold, and what they lack is text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from noetl.services.query.answer_formats import as_arrow, as_csv, as_rows

TABLE = pa.table(
    [
        pa.array([1, None], pa.int64()),
        pa.array([Decimal(9007199254740993), Decimal(12)], pa.decimal128(38, 0)),
        pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
        pa.array([float("inf"), 0.5]),
        pa.array([datetime(2026, 5, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        pa.array([date(2026, 5, 1), None]),
        pa.array([b"\x00\xff", None]),
        pa.array([[1, 2], None]),
        pa.array([{"a": "x,y"}, None]),
        pa.array([timedelta(seconds=5), None]),
        pa.array([True, None]),
    ],
    names=["n", "n", "d", "f", "t", "day", "b", "l", "s", "i", "ok"],
)


def test_rows_are_what_json_knows() -> None:
    first, second = as_rows(TABLE)
    assert first == [
        1, "9007199254740993", "1.50", "inf", "2026-05-01T00:00:00+00:00", "2026-05-01", "AP8=", [1, 2], {"a": "x,y"},
        "0:00:05", True,
    ]  # fmt: skip
    assert second[:4] == [None, 12, None, 0.5]


def test_csv_has_a_line_of_names_and_quotes_what_needs_it() -> None:
    lines = as_csv(TABLE).splitlines()
    assert lines[0] == "n,n,d,f,t,day,b,l,s,i,ok"
    assert lines[1].endswith(',AP8=,"[1, 2]","{""a"": ""x,y""}",0:00:05,true')
    assert lines[2] == ",12,,0.5,,,,,,,"


def test_an_arrow_stream_says_what_it_was_read_from() -> None:
    read = pa.ipc.open_stream(as_arrow(TABLE, {"noetl.as_of": "m1.x"})).read_all()
    assert read.schema.metadata == {b"noetl.as_of": b"m1.x"}
    assert read.replace_schema_metadata(None) == TABLE


def test_no_columns_and_no_rows_are_fine() -> None:
    assert as_rows(pa.table({"a": pa.array([], pa.int64())})) == []
    assert as_csv(pa.table({"a": pa.array([], pa.int64())})) == "a\n"
