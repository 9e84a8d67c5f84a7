"""Plain JSON values out of any Python values, or a refusal that names the place."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import math
import types
import uuid
from pathlib import PurePosixPath
from typing import Any

import msgspec
import orjson
import pyarrow
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.engine.tools.plain import SAFE_INTEGER, plain


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Nested(enum.Enum):
    PAIR = (1, 2)


class Invoice(msgspec.Struct, rename="camel"):
    due_on: dt.date


class Order(pydantic.BaseModel):
    placed: dt.datetime
    lines: list[decimal.Decimal]


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None


class Text(str):
    __slots__ = ()


PLUS_TWO = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=PLUS_TWO), "2024-05-06T07:08:09.000010+02:00"),
        (dt.datetime(2024, 5, 6), "2024-05-06T00:00:00"),  # noqa: DTZ001
        (dt.date(2024, 5, 6), "2024-05-06"),
        (dt.time(7, 8, tzinfo=PLUS_TWO), "07:08:00+02:00"),
        (dt.timedelta(0), "PT0S"),
        (dt.timedelta(days=2), "P2D"),
        (dt.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=50_000), "P1DT2H3M4.05S"),
        (dt.timedelta(seconds=-90), "-PT1M30S"),
        (decimal.Decimal("10.500"), "10.500"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
        (PurePosixPath("/a/b"), "/a/b"),
        (b"\xff", "/w=="),
        (bytearray(b"hi"), "aGk="),
        (memoryview(b"hi"), "aGk="),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (Colour.RED, "red"),
        (Size.LARGE, 3),
        (Nested.PAIR, [1, 2]),
        (Point(1, Point(2)), {"x": 1, "inner": {"x": 2, "inner": None}}),
        (Invoice(due_on=dt.date(2024, 1, 1)), {"dueOn": "2024-01-01"}),
        (Order(placed=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), lines=[decimal.Decimal("1.0")]),
         {"placed": "2024-01-01T00:00:00+00:00", "lines": ["1.0"]}),
        (collections.OrderedDict(a=(1,)), {"a": [1]}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (SAFE_INTEGER, SAFE_INTEGER),
        (SAFE_INTEGER + 1, "9007199254740992"),
        (-SAFE_INTEGER - 1, "-9007199254740992"),
        ({2: "a", None: "b", True: "c", 1.5: "d", Colour.RED: "e", uuid.UUID(int=0): "f"} | {Size.LARGE: "g"},
         {"2": "a", "true": "c", "null": "b", "1.5": "d", "red": "e", "00000000-0000-0000-0000-000000000000": "f", "3": "g"}),
        (pyarrow.scalar(decimal.Decimal("1.5")), "1.5"),
        (pyarrow.array([1, None]), [1, None]),
        (pyarrow.table({"a": [1], "d": [dt.date(2024, 1, 1)]}), [{"a": 1, "d": "2024-01-01"}]),
    ],
)  # fmt: skip
def test_values_become_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert orjson.loads(orjson.dumps(plain({"deep": [value]}))) == {"deep": [expected]}


def test_subclasses_of_plain_types_become_those_types() -> None:
    assert type(plain(Text("é"))) is str


def test_what_is_plain_already_comes_back_itself() -> None:
    value = {"a": [1, 2.5, None, True, "é"], "é": {"b": []}}
    assert plain(value) is value


def test_only_what_has_to_change_is_copied() -> None:
    kept = {"a": [1]}
    value = {"kept": kept, "changed": (1,)}
    result = plain(value)
    assert result == {"kept": {"a": [1]}, "changed": [1]}
    assert result["kept"] is kept
    assert value["changed"] == (1,)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [0, math.nan]}, r"\$\.a\[1\] is nan"),
        ({"a b": {"c": -math.inf}}, r"\$\['a b'\]\.c is -inf"),
        ([object()], r"\$\[0\] is of type object"),
        ({"f": Point}, r"\$\.f is of type type"),
        ({1: {2: print}}, r"\$\['1'\]\['2'\] is of type builtin_function_or_method"),
        ("\ud800", r"\$ holds a lone surrogate"),
        ({"\ud800": 1}, r"\$ holds a lone surrogate"),
        ({1: "a", "1": "b"}, r"\$ has two keys that both read '1'"),
        ({(1, 2): "a"}, r"\$ has the key \(1, 2\)"),
        (Point(1, Point(math.nan)), r"\$\.inner\.x is nan"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plain(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="deeper than 200 levels, or contains itself"):
        plain(value)


_leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.binary() | st.decimals(allow_nan=False) | st.datetimes() | st.timedeltas() | st.uuids()
)  # fmt: skip


@given(st.recursive(_leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner)))
def test_plain_values_survive_json_and_stay_plain(value: Any) -> None:
    once = plain(value)
    assert orjson.loads(orjson.dumps(once)) == once
    assert plain(once) is once


def test_arrays_and_frames_become_lists() -> None:
    numpy = pytest.importorskip("numpy")
    assert plain(numpy.array([[1, 2]])) == [[1, 2]]
    assert plain(numpy.float32(0.5)) == 0.5
    assert plain(numpy.datetime64("2024-01-02T03:04:05.123456789")) == "2024-01-02T03:04:05.123456789"
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "t": [pandas.Timestamp("2024-01-01", tz="UTC"), pandas.NaT]})
    assert plain(frame) == [{"a": 1, "t": "2024-01-01T00:00:00+00:00"}, {"a": 2, "t": None}]
    assert plain(pandas.Series([1.5, None])) == [1.5, None]
