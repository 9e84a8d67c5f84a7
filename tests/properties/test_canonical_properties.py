"""Canonical JSON agrees with an independent implementation on every JSON value, and loses nothing."""

from __future__ import annotations

import json
import struct

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from noetl.model.canonical import SAFE_INTEGER, canonical_json, digest_of

characters = st.characters(exclude_categories=["Cs"])
edge_characters = st.sampled_from('\x00\x1f"\\/\x7f\x80\u2028\ud7ff\ue000\ufb33\uffff\U00010000\U0001f600\U0010ffff')
texts = st.text(st.one_of(characters, edge_characters), max_size=12)
integers = st.integers(-SAFE_INTEGER, SAFE_INTEGER)
any_double = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0])
doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    any_double.filter(lambda number: number == number and abs(number) != float("inf")),
    st.builds(lambda digits, power: float(f"{digits}e{power}"), integers, st.integers(-40, 30)),
)
exact = st.one_of(st.none(), st.booleans(), integers, texts)


def json_values(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=6)),
        max_leaves=25,
    )


def _as_a_double(digits: str) -> float:
    """Read a number as JSON means it: beyond 2^53 its digits name the nearest double, not the integer they spell."""
    return int(digits) if abs(int(digits)) <= SAFE_INTEGER else float(digits)


@given(json_values(st.one_of(exact, doubles)))
def test_any_json_value_has_the_bytes_of_the_independent_implementation(value: object) -> None:
    """INV-23."""
    assert canonical_json(value) == rfc8785.dumps(value)


@given(json_values(exact))
def test_values_without_floats_have_the_bytes_of_the_independent_implementation(value: object) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(doubles)
def test_every_double_is_read_back_as_itself(number: float) -> None:
    assert canonical_json(number) == rfc8785.dumps(number)
    assert float(canonical_json(number)) == number


@given(json_values(st.one_of(exact, doubles)))
def test_reading_the_bytes_gives_the_value_back(value: object) -> None:
    assert json.loads(canonical_json(value), parse_int=_as_a_double) == value


@given(st.dictionaries(texts, st.one_of(exact, doubles), max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_keys_were_set_does_not_show(value: dict[str, object], random: object) -> None:
    items = list(value.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert digest_of(dict(items)) == digest_of(value)
