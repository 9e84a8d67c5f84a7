"""The lineage of SQL: what each construct does to columns, and that what cannot be followed is opaque, never missing."""

from __future__ import annotations

import pytest
from tests.unit.language.columns.corpus import CORPUS, INPUTS

from noetl.language.columns.sql.lineage import query_lineage
from noetl.model.lineage import Edge, Lineage

COLUMNS = {alias: list(columns) for alias, columns in INPUTS.items()}


def told(sql: str, columns: list[str] | None = None) -> Lineage:
    return query_lineage(sql, COLUMNS, columns)


def sources(found: Lineage, column: str | None) -> set[str]:
    edges = [edge for edge in found.edges if edge.column == column]
    return {f"{edge.source}.{edge.source_column or '*'} {edge.kind}" for edge in edges}


@pytest.mark.parametrize("name", CORPUS)
def test_every_query_of_the_corpus_is_followed(name: str) -> None:
    found = told(CORPUS[name])
    assert (found.how, found.reason) == ("sql", None)


def test_a_column_through_named_queries_joins_and_groups_keeps_its_way() -> None:
    found = told(CORPUS["cte"])
    assert sources(found, "name") == {"customers.name direct"}
    assert sources(found, "n") == {"orders.* aggregated"}
    assert sources(found, None) == {
        "orders.amount indirect",
        "orders.c_id indirect",
        "customers.c_id indirect",
    }


def test_a_named_query_that_nobody_reads_has_no_influence() -> None:
    assert sources(told(CORPUS["unused_cte"]), None) == set()


def test_a_name_before_an_input_hides_it() -> None:
    assert sources(told(CORPUS["cte_hides_input"]), "amount") == {"orders.amount transformed"}


def test_both_sides_of_a_full_join_are_in_its_column() -> None:
    assert sources(told(CORPUS["using_full"]), "c_id") == {"orders.c_id transformed", "customers.c_id transformed"}
    assert sources(told(CORPUS["using_right"]), "c_id") == {"customers.c_id direct"}


def test_the_right_side_of_a_difference_only_decides_about_rows() -> None:
    found = told(CORPUS["except"])
    assert sources(found, "c_id") == {"orders.c_id direct"}
    assert sources(found, None) == {"customers.c_id indirect", "customers.name indirect"}


def test_a_rank_is_made_of_what_it_ranks_by() -> None:
    found = told(CORPUS["window"])
    assert sources(found, "r") == {"orders.day aggregated"}
    assert sources(found, "s") == {"orders.amount aggregated"}
    assert {"orders.c_id indirect", "orders.day indirect", "orders.o_id indirect"} == sources(found, None)


def test_a_query_that_reads_itself_comes_to_rest() -> None:
    found = told(
        "WITH RECURSIVE up (id, boss) AS (SELECT o_id, c_id FROM orders UNION ALL"
        " SELECT o.o_id, up.boss + 1 FROM orders o JOIN up ON o.c_id = up.id) SELECT id, boss FROM up"
    )
    assert sources(found, "id") == {"orders.o_id direct"}
    assert sources(found, "boss") == {"orders.c_id transformed"}


def test_constants_are_told_too() -> None:
    assert Edge("one", None, None, "constant") in told(CORPUS["constants"]).edges


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT nothing FROM orders", "nothing is no column"),
        ("SELECT a FROM elsewhere", "elsewhere is no input"),
        ("SELECT FROM WHERE", "it cannot be read"),
        ("SELECT 1; SELECT 2", "it is not one SELECT"),
        ("INSERT INTO orders SELECT * FROM orders", "it is not one SELECT"),
        ("SELECT TRANSFORM (note) USING 'cat' AS (x STRING) FROM orders", ""),
    ],
)
def test_what_cannot_be_followed_is_opaque_and_says_why(sql: str, why: str) -> None:
    """INV-74."""
    found = told(sql, ["x", "y"])
    assert found.how == "opaque"
    assert why in (found.reason or "")
    assert sources(found, "x") == sources(found, "y") == {"orders.* opaque", "customers.* opaque"}


def test_an_answer_of_other_width_than_its_tree_is_opaque() -> None:
    """INV-74."""
    found = told("SELECT o_id FROM orders", ["a", "b"])
    assert (found.how, len(found.edges)) == ("opaque", 4)


def test_a_pivot_is_opaque_only_for_what_it_reads() -> None:
    sql = "SELECT c.name, p.a FROM customers c JOIN orders PIVOT (sum(amount) FOR note IN ('a')) p ON c.c_id = p.c_id"
    found = told(sql, ["name", "a"])
    assert sources(found, "name") == {"customers.name direct"}
    assert sources(found, "a") == {"orders.* opaque"}


def test_code_called_from_sql_is_opaque() -> None:
    found = told("SELECT reflect('java.util.UUID', 'fromString', note) AS r, upper(note) AS u FROM orders")
    assert sources(found, "r") == {"orders.note opaque"}
    assert sources(found, "u") == {"orders.note transformed"}
