"""Which queries may run for many tasks at once, and how the key of each task gets into them."""

from __future__ import annotations

import pytest

from noetl.errors import InputError
from noetl.spark.queries.combined import carry
from noetl.spark.queries.combined_joins import NotSeparable
from noetl.spark.queries.tree import one_query


def carried(sql):
    return carry(sql, ["e", "n"], ["p"], "k")


@pytest.mark.parametrize(
    ("sql", "made"),
    [
        ("SELECT id FROM e", "SELECT id, e.k AS k FROM e"),
        ("SELECT * FROM E AS x", "SELECT * EXCEPT (k), x.k AS k FROM E AS x"),
        ("SELECT a, COUNT(*) FROM e GROUP BY a", "SELECT a, COUNT(*), e.k AS k FROM e GROUP BY a, e.k"),
        ("SELECT COUNT(*) FROM e", "SELECT COUNT(*), e.k AS k FROM e GROUP BY e.k"),
        (
            "SELECT SUM(a) OVER (ORDER BY b) FROM e",
            "SELECT SUM(a) OVER (PARTITION BY e.k ORDER BY b), e.k AS k FROM e",
        ),
        ("SELECT x FROM e JOIN n ON e.a = n.a", "SELECT x, e.k AS k FROM e JOIN n ON e.a = n.a AND e.k = n.k"),
        ("SELECT x FROM e JOIN p ON e.a = p.a", "SELECT x, e.k AS k FROM e JOIN p ON e.a = p.a"),
        ("SELECT a FROM e ORDER BY a", "SELECT a, e.k AS k FROM e ORDER BY k, a"),
        (
            "SELECT a FROM e WHERE b > (SELECT AVG(e.b) FROM e)",
            "SELECT a, e.k AS k FROM e WHERE b > (SELECT AVG(k_1.b) FROM e AS k_1 WHERE k_1.k = e.k)",
        ),
        (
            "SELECT a FROM e UNION ALL SELECT b FROM n",
            "SELECT a, e.k AS k FROM e UNION ALL SELECT b, n.k AS k FROM n",
        ),
        (
            "SELECT 1 FROM e FULL JOIN n ON e.a = n.a",
            "SELECT 1, COALESCE(e.k, n.k) AS k FROM e FULL JOIN n ON e.a = n.a AND e.k = n.k",
        ),
        (
            "WITH e AS (SELECT a FROM e) SELECT a FROM e",
            "WITH e AS (SELECT a, e.k AS k FROM e) SELECT a, e.k AS k FROM e",
        ),
    ],
)
def test_the_key_gets_into_every_place_where_rows_meet(sql, made):
    assert carried(sql).sql == made


@pytest.mark.parametrize("sql", ["SELECT COUNT(*) AS n FROM e", "SELECT MAX(a) + 1 FROM e WHERE b"])
def test_a_query_that_always_answers_says_so(sql):
    assert carried(sql).always_answers
    assert not carried("SELECT a, COUNT(*) FROM e GROUP BY a").always_answers


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT a FROM e LIMIT 3", "LIMIT"),
        ("SELECT a FROM (SELECT a FROM e LIMIT 3)", "LIMIT"),
        ("SELECT a FROM e TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT * FROM e PIVOT (SUM(a) FOR b IN (1, 2))", "PIVOT"),
        ("SELECT a, COUNT(*) FROM e GROUP BY CUBE (a)", "CUBE"),
        ("SELECT a, COUNT(*) FROM e GROUP BY ALL", "ALL"),
        ("SELECT COUNT(*) FROM e HAVING COUNT(*) > 1", "aggregate over all rows"),
        ("SELECT a FROM (SELECT COUNT(*) AS a FROM e)", "aggregate over all rows"),
        ("SELECT COUNT(*) FROM e UNION ALL SELECT COUNT(*) FROM n", "aggregate over all rows"),
        ("SELECT uuid() FROM e", "uuid"),
        ("SELECT a FROM p", "no input that differs"),
        ("SELECT p.a FROM p LEFT JOIN e ON p.a = e.a", "LEFT JOIN keeps rows"),
        ("SELECT p.a FROM e FULL JOIN p ON p.a = e.a", "FULL JOIN keeps rows"),
        ("SELECT p.a FROM p LEFT ANTI JOIN e ON p.a = e.a", "JOIN keeps rows"),
        ("SELECT a FROM e NATURAL JOIN n", "NATURAL JOIN"),
        ("SELECT e.a FROM e JOIN p USING (a) JOIN n USING (a)", "USING over more"),
        ("SELECT a FROM e EXCEPT SELECT a FROM p", "one side of EXCEPT"),
        ("SELECT struct(*) FROM e", "star inside of a function"),
        ("SELECT COUNT(e.*) FROM e", "star inside of a function"),
        ("SELECT a FROM e WHERE b IN (SELECT b FROM n UNION SELECT b FROM p)", "more than one SELECT"),
        ("SELECT a FROM e WHERE b IN (SELECT MAX(b) FROM n GROUP BY c)", "GROUP BY, HAVING or a window"),
        ("SELECT a FROM p WHERE b IN (SELECT b FROM n)", "more than one SELECT"),
        ("SELECT a FROM e JOIN n ON e.a IN (SELECT b FROM p)", "join of a special kind"),
        ("SELECT k FROM e", "uses the name k"),
        ("SELECT a FROM range(10), e", "no input"),
        ("SELECT a FROM other", "other is no input"),
        ("WITH RECURSIVE t AS (SELECT a FROM e) SELECT a FROM t", "RECURSIVE"),
    ],
)
def test_a_query_that_lets_tasks_meet_is_refused_with_the_reason(sql, reason):
    with pytest.raises(NotSeparable, match=reason):
        carried(sql)


def test_text_that_is_no_sql_is_told_with_its_place():
    with pytest.raises(InputError, match="line 2, column"):
        one_query("SELECT a\nFROM (SELECT")
