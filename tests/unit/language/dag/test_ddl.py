"""Types are spelled as Spark prints them; what Spark does not have is refused with what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.language.dag.ddl import NotAType, spelled


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("bigint", "bigint"), ("LONG", "bigint"), ("integer", "int"), ("real", "float"), ("byte", "tinyint"), ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"), ("decimal( 22 , 2 )", "decimal(22,2)"), ("varchar(10)", "varchar(10)"), ("char(1)", "char(1)"),
        ("timestamp_ltz", "timestamp"), ("timestamp_ntz", "timestamp_ntz"), ("array<integer>", "array<int>"), ("map<string, long>", "map<string,bigint>"),
        ("struct<a: int, b string>", "struct<a:int,b:string>"), ("struct<`a b`: array<map<int,struct<x:date>>>>", "struct<a b:array<map<int,struct<x:date>>>>"),
        ("struct<>", "struct<>"), ("variant", "variant"),
    ],
)  # fmt: skip
def test_a_type_is_spelled_as_spark_prints_it(text: str, spelling: str) -> None:
    assert spelled(text) == spelling


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bigit", "did you mean bigint"), ("", "missing at its end"), ("array", "a < is missing"), ("array<int", "a > is missing"),
        ("map<int>", "a , is missing"), ("int int", "goes on"), ("decimal(39,0)", "1 to 38 digits"), ("decimal(2,3)", "1 to 38 digits"),
        ("varchar", "a .* is missing"), ("char(0)", "at least 1"), ("int!", "belongs to no type"), ("decimal(a)", "a number must stand"),
        ("struct<a", "missing at its end"), ("array<" * 40, "nested deeper"),
    ],
)  # fmt: skip
def test_what_is_no_type_is_refused(text: str, said: str) -> None:
    with pytest.raises(NotAType, match=said):
        spelled(text)


_LEAVES = st.sampled_from(["int", "bigint", "string", "decimal(5,2)", "timestamp_ntz", "varchar(3)", "binary"])
_TYPES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda one: f"array<{one}>"),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(inner, max_size=3).map(
            lambda all_: f"struct<{','.join(f'f{n}:{one}' for n, one in enumerate(all_))}>"
        ),
    ),
    max_leaves=8,
)


@given(_TYPES)
def test_a_spelling_stays_as_it_is(text: str) -> None:
    assert spelled(text) == text
