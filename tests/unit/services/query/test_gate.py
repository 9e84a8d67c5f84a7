"""The gate lets ordinary analytics through and nothing else, and what is run is never the text that was asked."""

from __future__ import annotations

import logging
from contextlib import suppress

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from tests.unit.services.query.corpus import Asked, blocks
from tests.unit.services.query.market import market

from noetl.services.query.errors import QueryRefused
from noetl.services.query.gate import functions
from noetl.services.query.gate.gate import LONGEST, EngineName, read
from noetl.services.query.gate.relations import folded

DATASETS = tuple(market())
BARE = duckdb.connect()
ENGINES: tuple[EngineName, ...] = ("duckdb", "spark")


def executable(sql: str, engine: EngineName = "duckdb", rows: int = 101) -> str:
    """Pass a query through the whole gate; datasets of the market get names by their place."""
    checked = read(sql, engine)
    known = {name: f"__noetl_{DATASETS.index(folded(name))}" for name in checked.datasets if folded(name) in DATASETS}
    return checked.executable(known, DATASETS, rows)


def refused(sql: str, engine: EngineName = "duckdb") -> QueryRefused:
    with pytest.raises(QueryRefused) as caught:
        executable(sql, engine)
    return caught.value


@pytest.mark.parametrize("engine", ENGINES)
def test_hostile_statements_are_refused(engine: EngineName, caplog: pytest.LogCaptureFixture) -> None:
    """INV-76."""
    found = blocks(f"hostile_{engine}.sql")
    assert len(found) >= 150
    passed = []
    with caplog.at_level(logging.DEBUG):
        for one in found:
            with suppress(QueryRefused):
                passed.append((one.name, executable(one.sql, engine)))
    assert passed == []
    assert caplog.records == [], "what was asked must not be logged"


@pytest.mark.parametrize(
    ("engine", "asked"),
    [(engine, one) for engine in ENGINES for one in blocks("ordinary.sql") if one.engine in (None, engine)],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_ordinary_analytics_pass(engine: EngineName, asked: Asked) -> None:
    text = executable(asked.sql, engine)
    again = sqlglot.parse_one(text, read=engine)
    assert again.sql(dialect=engine, identify=True, comments=False) == text
    allowed = {f"__noetl_{number}" for number in range(len(DATASETS))}
    named = {table.name for table in again.find_all(exp.Table) if isinstance(table.this, exp.Identifier)}
    assert {name for name in named if not name.startswith("__noetl_with_")} <= allowed


def test_the_corpora_are_large_enough() -> None:
    for engine in ENGINES:
        assert sum(one.engine in (None, engine) for one in blocks("ordinary.sql")) >= 60


@pytest.mark.parametrize(
    ("sql", "rule", "line", "column"),
    [
        ("SELECT a,\n  getenv('x')\nFROM orders", "function", 2, 3),
        ("SELECT *\nFROM 'x.parquet'", "relation", 2, 6),
        ("SELECT *\nFROM  main.orders", "relation", 2, 7),
        ("WITH nation AS (SELECT 1)\nSELECT * FROM nation", "shadowed", 1, 6),
        ("SELECT 1;\nSELECT 2", "statements", 1, 9),
        ("SELECT 1,\n\n  )", "unreadable", 3, 3),
        ("SELECT x FROM orders,\n range(99999999999)", "bound", 2, 2),
    ],
)
def test_a_refusal_names_its_place_and_what_is_allowed(sql: str, rule: str, line: int, column: int) -> None:
    problem = refused(sql)
    assert (problem.rule, problem.details["line"], problem.details["column"]) == (rule, line, column)
    assert problem.message.startswith(f"line {line}, column {column}: ")
    assert problem.hint


def test_a_refusal_never_repeats_a_literal() -> None:
    for sql in (
        "SELECT getenv('pa55word')",
        "SELECT 'pa55word' FROM nowhere",
        "SELECT 'pa55word",
        "PRAGMA x='pa55word'",
    ):
        problem = refused(sql)
        assert "pa55word" not in problem.message + (problem.hint or "")


def test_a_name_that_is_nearly_right_is_offered() -> None:
    assert refused("SELECT * FROM order").hint == "did you mean orders?"


def test_what_runs_is_written_anew() -> None:
    text = executable("select /* why */ O.O_OrderKey -- key\n from ORDERS as O where o.o_comment = 'it''s'")
    assert text == ("""SELECT "O"."O_OrderKey" FROM "__noetl_6" AS "O" WHERE "o"."o_comment" = 'it''s' LIMIT 101""")


def test_a_query_of_with_gets_a_name_of_our_own_where_it_holds() -> None:
    text = executable(
        "WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT a.x FROM b AS a JOIN a AS c ON a.x = c.x"
    )
    assert text == (
        'WITH "__noetl_with_0" AS (SELECT 1 AS "x"), "__noetl_with_1" AS (SELECT "x" FROM "__noetl_with_0" AS "a") '
        'SELECT "a"."x" FROM "__noetl_with_1" AS "a" JOIN "__noetl_with_0" AS "c" ON "a"."x" = "c"."x" LIMIT 101'
    )


def test_datasets_are_those_that_no_with_defines() -> None:
    checked = read(
        "WITH a AS (SELECT * FROM orders) SELECT * FROM a, Nation, (SELECT 1 FROM nation) AS b, ORDERS", "duckdb"
    )
    assert {folded(name) for name in checked.datasets} == {"orders", "nation"}
    assert len(checked.datasets) == 2


@pytest.mark.parametrize(
    ("sql", "ends"),
    [
        ("SELECT 1", "LIMIT 101"),
        ("SELECT 1 LIMIT 5", "LIMIT 5"),
        ("SELECT 1 LIMIT 500", 'AS "__noetl_all" LIMIT 101'),
        ("SELECT 1 LIMIT 2 + 3", 'AS "__noetl_all" LIMIT 101'),
        ("SELECT 1 ORDER BY 1 LIMIT 5 OFFSET 2", "LIMIT 5 OFFSET 2"),
        ("SELECT 1 UNION SELECT 2", "LIMIT 101"),
        ("(SELECT 1 LIMIT 7)", "LIMIT 101"),
        ("VALUES (1)", "LIMIT 101"),
    ],
)
def test_no_more_rows_come_out_than_were_asked_for(sql: str, ends: str) -> None:
    assert executable(sql).endswith(ends)


def test_a_query_that_is_too_large_or_too_deep_is_refused() -> None:
    assert refused(f"SELECT '{'x' * LONGEST}'").rule == "size"
    assert refused("SELECT " + ", ".join(["1"] * 20_000)).rule == "size"
    for deep in ("SELECT " + "(" * 400 + "1" + ")" * 400, "SELECT " + " + ".join(["1"] * 5_000)):
        assert refused(deep).rule in ("size", "unwritable")
    assert executable("SELECT 1 IN (" + ", ".join(map(str, range(3_000))) + ") AS found")


def test_every_function_that_may_be_called_is_there() -> None:
    known = {kind.__name__ for kind in exp.ALL_FUNCTIONS}
    assert known >= functions.KNOWN, "sqlglot has no such classes"
    rows = BARE.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    windows = "row_number rank rank_dense dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value fill"
    assert functions.NAMED["duckdb"] - {row[0] for row in rows} <= set(windows.split()), "DuckDB has no such functions"


_texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40)
_columns = st.sampled_from(["a", "b", "orders.a", '"with space"', '"quo""te"', "o_comment"])
_literals = st.one_of(
    st.integers(0, 10**17).map(str),
    st.floats(0, 1e6, allow_nan=False).map(lambda number: f"{number:.4f}"),
    _texts.map(lambda text: "'" + text.replace("'", "''") + "'"),
    st.sampled_from(["NULL", "TRUE", "DATE '2020-01-01'", "INTERVAL '1' DAY"]),
)
_expressions = st.recursive(
    st.one_of(_columns, _literals),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "||", "=", "<>", "<", "AND", "OR", "LIKE"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(st.sampled_from(["upper", "sum", "coalesce", "abs", "length", "max"]), inner).map(
            lambda parts: f"{parts[0]}({parts[1]})"
        ),
        st.tuples(inner, inner).map(lambda parts: f"CASE WHEN {parts[0]} THEN {parts[1]} ELSE NULL END"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(a IN ({', '.join(parts)}))"),
        inner.map(lambda one: f"(SELECT max({one}) FROM nation)"),
        inner.map(lambda one: f"CAST({one} AS VARCHAR)"),
    ),
    max_leaves=8,
)
_queries = st.tuples(st.lists(_expressions, min_size=1, max_size=3), _expressions, st.booleans()).map(
    lambda parts: (
        f"SELECT {', '.join(parts[0])} FROM orders AS orders WHERE {parts[1]}"
        + (" UNION ALL SELECT 1 FROM (VALUES (1)) AS t (x)" if parts[2] else "")
    )
)


@given(_queries)
@settings(max_examples=80, deadline=None)
def test_what_runs_parses_to_the_tree_it_was_written_from(sql: str) -> None:
    """INV-76."""
    text = executable(sql)
    tree = sqlglot.parse_one(text, read="duckdb")
    again = sqlglot.parse_one(tree.sql(dialect="duckdb", identify=True), read="duckdb")
    assert again == tree
    asked = sqlglot.parse_one(sql, read="duckdb")
    assert sorted(one.name for one in tree.find_all(exp.Literal) if one.is_string) == sorted(
        one.name for one in asked.find_all(exp.Literal) if one.is_string
    )


@given(_texts)
@settings(max_examples=60, deadline=None)
def test_a_text_reaches_the_engine_as_it_was_asked(text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    (row,) = BARE.execute(executable(f"SELECT {quoted} AS t")).fetchall()
    assert row[0] == text


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_name_reaches_the_engine_as_it_was_asked(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    if not name.isprintable() or folded(name).startswith("__noetl_"):
        assert refused(f"SELECT 1 AS {quoted}").rule == "name"
        return
    text = executable(f"SELECT 1 AS {quoted}")
    assert [column[0] for column in BARE.execute(text).description or ()] == [name]
    BARE.fetchall()
