"""SQL is read in Spark's dialect without being run: its tables from outside, its columns, and what is wrong with it."""

from __future__ import annotations

import pytest
from tests.unit.language.dag.writing import codes, dag

from noetl.language.dag.parse import problems_of
from noetl.language.dag.sql import SqlUnreadable, read_select


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT 1 AS a", []),
        ("SELECT id FROM range(10)", []),
        ("SELECT * FROM VALUES (1, 'a') AS t(id, name)", []),
        ("SELECT * FROM explode(array(1, 2))", []),
        ("SELECT * FROM a JOIN b USING (id)", ["a", "b"]),
        ("SELECT * FROM a AS b", ["a"]),
        ("SELECT * FROM `a`;", ["a"]),
        ("FROM a SELECT x", ["a"]),
        ("SELECT x FROM a LATERAL VIEW explode(items) t AS x", ["a"]),
        ("WITH c AS (SELECT * FROM a) SELECT * FROM c", ["a"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("SELECT * FROM (SELECT * FROM a UNION ALL SELECT * FROM b)", ["a", "b"]),
        ("SELECT (SELECT max(x) FROM b) AS m FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k)", ["a", "b", "c"]),
        ("SELECT 1 FROM a WHERE k IN (SELECT k FROM b)", ["a", "b"]),
        ("SELECT * FROM a TABLESAMPLE (10 ROWS)", ["a"]),
        ("SELECT * FROM db.a", ["db.a"]),
        ("SELECT * FROM parquet.`/tmp/x`", ["parquet./tmp/x"]),
    ],
)
def test_tables_from_outside_are_found(text: str, tables: list[str]) -> None:
    assert sorted(table.name for table in read_select(text).tables) == tables


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT a, b AS c, count(*) AS n FROM t", ("a", "c", "n")),
        ("SELECT a FROM t UNION ALL SELECT b FROM u", ("a",)),
        ("SELECT * FROM t", None),
        ("SELECT t.*, 1 AS a FROM t", None),
        ("SELECT a, count(*) FROM t", None),
    ],
)
def test_columns_are_told_only_where_they_are_sure(text: str, columns: tuple[str, ...] | None) -> None:
    assert read_select(text).columns == columns


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("SELECT a\nFROM x WHERE )", r"near \)", 2),
        ("SELECT 'a", "not closed", 1),
        ("SELECT 1; SELECT 2", "2 statements", 1),
        ("-- nothing\n", "no statement", 1),
        ("INSERT INTO t SELECT 1", "no SELECT", 1),
        ("DROP TABLE t", "no SELECT", 1),
        ("SELECT (" * 400, "nested too deeply", 1),
    ],
)
def test_what_is_no_select_is_refused_with_its_line(text: str, said: str, line: int) -> None:
    with pytest.raises(SqlUnreadable, match=said) as caught:
        read_select(text)
    assert caught.value.line == line


def test_the_place_of_a_table_is_that_of_its_first_use() -> None:
    (first, second) = read_select("SELECT *\nFROM good\n  JOIN `bad` ON true\n  JOIN bad b ON true").tables
    assert (first.name, first.line, first.column) == ("good", 2, 6)
    assert (second.name, second.line) == ("bad", 3)


def test_a_table_that_is_no_input_is_an_error_and_an_input_not_read_a_warning() -> None:
    found = problems_of(dag({"name": "it", "inputs": {"orders": "up"}, "sql": "SELECT 1 AS a FROM ordes"}))
    assert {(one.severity, one.code, one.suggestion) for one in found} == {
        ("error", "unknown_table", "did you mean orders?"),
        ("warning", "unread_input", "the SELECT does not name it"),
    }


def test_tables_are_known_whatever_their_case() -> None:
    assert codes(dag({"name": "it", "inputs": {"orders": "up"}, "sql": "SELECT 1 AS a FROM ORDERS"})) == []


def test_a_file_of_sql_is_held_against_the_inputs_too() -> None:
    text = dag({"name": "it", "inputs": ["up"], "file": "it.sql", "partition_by": "day"})
    assert codes(text, files={"it.sql": b"SELECT day FROM up"}) == []
    assert codes(text, files={"it.sql": b"SELECT id FROM up"}) == ["unknown_column"]
    assert codes(text, files={"it.sql": b"SELECT day FROM down"}) == ["unread_input", "unknown_table"]
    assert codes(text, files={"it.sql": b"\xff"}) == ["not_text"]
    assert codes(text, files={}) == ["unknown_file"]
    assert codes(text) == []
