"""How columns may change: what is allowed under each rule, what a refusal says, and that no commit narrows a schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.model.dataset import Field
from noetl.pipelines.plan.schema_rules import Evolve, judge, refusal, spelled, widens

BEFORE = (Field("id", "int", nullable=False), Field("amount", "decimal(10,2)"))


def test_the_first_commit_fixes_the_schema() -> None:
    verdict = judge((), BEFORE, (), "refuse")
    assert (verdict.schema, verdict.change, verdict.problems) == (BEFORE, "first", ())


def test_equal_columns_in_another_order_are_no_change() -> None:
    verdict = judge(BEFORE, BEFORE[::-1], (), "refuse")
    assert (verdict.schema, verdict.change, verdict.problems) == (BEFORE, "none", ())


def test_declared_columns_bind_the_first_commit() -> None:
    declared = (Field("id", "int"), Field("amount", "decimal(10,2)"))
    assert judge((), BEFORE, declared, "refuse").change == "first"
    verdict = judge((), BEFORE[:1], declared, "refuse")
    assert verdict.problems == ("column amount (decimal(10,2)) is missing",)


@pytest.mark.parametrize(
    ("written", "allowed_from"),
    [
        ((*BEFORE, Field("tip", "int")), "add_columns"),
        ((Field("id", "bigint"), BEFORE[1]), "widen"),
        ((BEFORE[0], Field("amount", "decimal(12,2)")), "widen"),
        ((Field("id", "smallint"), BEFORE[1]), "widen"),
        ((Field("id", "string"), BEFORE[1]), "any"),
        (BEFORE[:1], "any"),
    ],
)
def test_each_rule_allows_what_those_before_it_do(written: tuple[Field, ...], allowed_from: Evolve) -> None:
    rules: list[Evolve] = ["refuse", "add_columns", "widen", "any"]
    for place, rule in enumerate(rules):
        assert bool(judge(BEFORE, written, (), rule).problems) == (place < rules.index(allowed_from)), rule


def test_a_narrower_type_leaves_the_wider_one_standing() -> None:
    assert judge(BEFORE, (Field("id", "smallint"), BEFORE[1]), (), "widen").schema == (Field("id", "int"), BEFORE[1])


def test_a_column_that_may_be_null_is_never_refused() -> None:
    verdict = judge(BEFORE, (Field("id", "int"), BEFORE[1]), (), "refuse")
    assert (verdict.problems, verdict.change, verdict.schema[0].nullable) == ((), "evolved", True)


def test_a_refusal_names_every_column() -> None:
    verdict = judge(BEFORE, (Field("id", "string"), Field("tip", "int")), (), "refuse")
    text = refusal("orders", verdict, "refuse")
    assert "column id was int and is string" in text
    assert "column amount (decimal(10,2)) is missing" in text
    assert "column tip (int) is new" in text
    assert "evolve: add_columns" in text


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ("INTEGER", "int"),
        ("Decimal(8)", "decimal(8,0)"),
        ("numeric(8, 2)", "decimal(8,2)"),
        ("decimal", "decimal(10,0)"),
        ("array<LONG>", "array<bigint>"),
        ("struct<byte: long, b: array<short>>", "struct<byte:bigint,b:array<smallint>>"),
        ("timestamp_ltz", "timestamp"),
    ],
)
def test_types_have_one_spelling(written: str, short: str) -> None:
    assert spelled(written) == short


@pytest.mark.parametrize(
    ("old", "new", "wider"),
    [
        ("tinyint", "bigint", True),
        ("bigint", "int", False),
        ("float", "double", True),
        ("bigint", "double", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("string", "int", False),
    ],
)
def test_a_type_is_wider_if_it_has_all_the_values(old: str, new: str, *, wider: bool) -> None:
    assert widens(old, new) == wider


columns = st.lists(
    st.builds(Field, st.sampled_from("abcde"), st.sampled_from(["int", "bigint", "string"]), st.booleans()),
    min_size=1,
    unique_by=lambda field: field.name,
).map(tuple)


@given(columns, columns, st.sampled_from(["refuse", "add_columns", "widen", "any"]))
def test_an_allowed_commit_keeps_every_column_and_is_no_change_the_second_time(
    current: tuple[Field, ...], written: tuple[Field, ...], evolve: Evolve
) -> None:
    verdict = judge(current, written, (), evolve)
    if verdict.problems:
        return
    assert {one.name for one in verdict.schema} == {one.name for one in (*current, *written)}
    again = judge(verdict.schema, written, (), evolve)
    assert (again.problems, again.change) == ((), "none")
