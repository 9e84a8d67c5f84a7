"""Canonical JSON: one byte sequence for one value, and a clear refusal of what has none."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import uuid

import pytest
import rfc8785
from blake3 import blake3

from noetl.model.canonical import MAX_DEPTH, canonical_json, digest_of, sha256_hex


class Text(str):
    __slots__ = ()


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Ratio(float):
    def __repr__(self) -> str:
        return "a ratio"


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_keys_are_sorted_and_no_space_is_left() -> None:
    assert (
        canonical_json({"b": [1, True, None], "a": {"d": "x", "c": ()}}) == b'{"a":{"c":[],"d":"x"},"b":[1,true,null]}'
    )


def test_the_example_of_the_standard_gives_its_bytes() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert (
        canonical_json(value)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


def test_keys_beyond_the_basic_plane_sort_by_utf16_units() -> None:
    # By code point the emoji would come last; its first UTF-16 unit, 0xD83D, is below 0xFB33.
    value = {"\ufb33": 1, "\U0001f600": 2, "\u00f6": 3, "1": 4}
    assert canonical_json(value) == '{"1":4,"\u00f6":3,"\U0001f600":2,"\ufb33":1}'.encode()


def test_every_code_point_is_written_as_the_standard_says() -> None:
    for block in range(0, 0x110000, 0x100):
        if 0xD800 <= block < 0xE000:
            continue
        for text in ("".join(map(chr, range(block, block + 0x100))), chr(block), chr(block) + "x" * 40):
            assert canonical_json(text) == rfc8785.dumps(text), hex(block)


def test_a_value_is_left_as_it_was() -> None:
    value = {"a": [0.5, {"b": 1e300}], "c": {"d": [1, [2.0]]}}
    before = repr(value)
    canonical_json(value)
    assert repr(value) == before


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.0, "-1"),
        (5e-324, "5e-324"),
        (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e21, "-1.5e+21"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (333333333.3333332, "333333333.3333332"),
        (0.000001, "0.000001"),
        (-0.0000123, "-0.0000123"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        (1e16, "10000000000000000"),
        (-1.2345678901234567e19, "-12345678901234567000"),
    ],
)
def test_numbers_are_laid_out_as_in_ecmascript(number: float, text: str) -> None:
    assert canonical_json(number) == text.encode()


def test_a_float_without_fraction_and_its_integer_have_the_same_bytes() -> None:
    assert canonical_json({"n": 12.0}) == canonical_json({"n": 12})


def test_subclasses_of_json_types_count_as_what_they_extend() -> None:
    value = {Text("k"): [Text("v"), Colour.RED, Level.HIGH, Ratio(0.5)]}
    assert canonical_json(value) == b'{"k":["v","red",3,0.5]}'


def test_empty_containers_beside_a_float_are_written_whole() -> None:
    assert canonical_json([0.5, [], {}, (), {"a": {}, "b": [True, False, None]}]) == (
        b'[0.5,[],{},[],{"a":{},"b":[true,false,null]}]'
    )


@pytest.mark.parametrize("edge", [2**53 - 1, -(2**53) + 1])
def test_the_largest_safe_integers_are_written(edge: int) -> None:
    assert json.loads(canonical_json([edge])) == [edge]
    assert json.loads(canonical_json([edge, 0.5])) == [edge, 0.5]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"a": [1, math.nan]}, ValueError, r"^\$\.a\[1\] is nan"),
        ({"a": {"b c": math.inf}}, ValueError, r"^\$\.a\['b c'\] is inf"),
        (-math.inf, ValueError, r"^\$ is -inf"),
        ({"id": 2**53}, ValueError, r"^\$\.id is an integer beyond .* write it as a string"),
        ([-(2**53)], ValueError, r"^\$\[0\] is an integer beyond"),
        ({"a": {1: 2}}, TypeError, r"^\$\.a has the key 1 of type int; keys must be strings"),
        ({"a": {None: 2, "x": 0.5}}, TypeError, r"^\$\.a has the key None of type NoneType"),
        ({"a": ["\ud800"]}, ValueError, r"^\$\.a\[0\] holds a lone surrogate"),
        ({"a": {"\udc00": 1}}, ValueError, r"^\$\.a has the key '\\udc00' with a lone surrogate"),
        ({"at": datetime.datetime.now(datetime.UTC)}, TypeError, r"^\$\.at is of type datetime"),
        ({"n": decimal.Decimal(1)}, TypeError, r"^\$\.n is of type Decimal"),
        ({"n": uuid.UUID(int=1)}, TypeError, r"^\$\.n is of type UUID"),
        ([b"x"], TypeError, r"^\$\[0\] is of type bytes"),
        ({"s": {1}}, TypeError, r"^\$\.s is of type set"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(value: object, error: type[Exception], message: str) -> None:
    """INV-23."""
    with pytest.raises(error, match=message):
        canonical_json(value)


def test_nesting_is_accepted_up_to_the_limit() -> None:
    assert canonical_json(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH


def test_nesting_beyond_the_limit_is_refused_with_a_short_place() -> None:
    with pytest.raises(ValueError, match=r"^\$(\[0\]){12}… is nested deeper than 200 levels"):
        canonical_json(nested(MAX_DEPTH + 1))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, object] = {}
    value["self"] = value
    with pytest.raises(ValueError, match="contains itself"):
        canonical_json(value)


def test_the_digest_is_blake3_over_the_canonical_bytes() -> None:
    assert digest_of({"b": 1, "a": 2.0}) == blake3(b'{"a":2,"b":1}').hexdigest()


def test_sha256_is_over_exactly_the_given_bytes() -> None:
    assert sha256_hex(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
