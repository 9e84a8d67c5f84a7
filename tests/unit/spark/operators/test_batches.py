"""Several tasks as one Spark job: each must get just the rows it would have got alone."""

from __future__ import annotations

import sys
from decimal import Decimal

import duckdb
import msgspec
import pyarrow as pa
import pytest
import sqlglot

from noetl.spark.drivers.ongoing_work import ONGOING
from noetl.spark.lake.parquet_files import read_table

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
EVENTS = "id bigint;day string;who string;amount bigint"
NOTES = "id bigint;day string;note string"
PEOPLE = "who string;town string"

SEPARABLE = {
    "rows": "SELECT id, day, amount * 2 AS twice FROM events WHERE amount > 2",
    "star": "SELECT * FROM events",
    "star of a join": "SELECT * FROM events e JOIN (SELECT who AS w, town FROM people) p ON e.who = p.w WHERE p.town = 'Bern'",
    "star of one side": "SELECT e.*, n.note FROM events e LEFT JOIN notes n ON e.id = n.id",
    "no partition column": "SELECT id, upper(who) AS loud FROM events",
    "group by the key": "SELECT day, sum(amount) AS total FROM events GROUP BY day",
    "group by another": "SELECT who, sum(amount) AS total, count(*) AS n FROM events GROUP BY who",
    "group by position": "SELECT who, max(amount) FROM events GROUP BY 1 HAVING count(*) > 1",
    "one row for all": "SELECT count(*) AS n, sum(amount) AS total FROM events WHERE amount > 3",
    "window": "SELECT id, row_number() OVER (PARTITION BY who ORDER BY id) AS nr FROM events",
    "window over all": "SELECT id, sum(amount) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS run FROM events",
    "named window": "SELECT id, sum(amount) OVER w AS s, rank() OVER (w) AS r FROM events WINDOW w AS (PARTITION BY who ORDER BY id)",
    "window over a group": "SELECT who, rank() OVER (ORDER BY sum(amount) DESC, who) AS r FROM events GROUP BY who",
    "distinct": "SELECT DISTINCT who FROM events",
    "join by another column": "SELECT e.id, n.id AS other FROM events e JOIN notes n ON e.amount = n.id",
    "using": "SELECT id, amount, note FROM events JOIN notes USING (id)",
    "cross": "SELECT e.id, n.note FROM events e CROSS JOIN notes n WHERE e.id = n.id",
    "full join": "SELECT coalesce(e.id, n.id) AS id, note, amount FROM events e FULL JOIN notes n ON e.id = n.id",
    "right join": "SELECT n.id, e.amount FROM events e RIGHT JOIN notes n ON e.id = n.id",
    "semi": "SELECT e.id FROM events e LEFT SEMI JOIN notes n ON e.amount = n.id",
    "anti": "SELECT * FROM events e LEFT ANTI JOIN notes n ON e.amount = n.id",
    "lookup": "SELECT e.id, p.town FROM events e LEFT JOIN people p ON e.who = p.who",
    "lookup first": "SELECT e.id, p.town FROM people p RIGHT JOIN events e ON e.who = p.who",
    "union": "SELECT id, who AS t FROM events UNION SELECT id, note FROM notes",
    "union all": "SELECT id FROM events UNION ALL SELECT id FROM notes",
    "except": "SELECT id FROM events EXCEPT SELECT amount FROM events",
    "order": "SELECT id, amount FROM events ORDER BY amount DESC, id",
    "with": "WITH big AS (SELECT * FROM events WHERE amount > 1), t(w, s) AS (SELECT who, sum(amount) FROM big GROUP BY who) SELECT b.id, t.s FROM big b JOIN t ON b.who = t.w",
    "derived": "SELECT who, n FROM (SELECT who, count(*) AS n FROM events GROUP BY who) WHERE n > 1",
    "scalar subquery": "SELECT id FROM events WHERE amount >= (SELECT avg(amount) FROM events)",
    "count in a subquery": "SELECT id, (SELECT count(*) FROM notes) AS n FROM events",
    "shared subquery": "SELECT id FROM events WHERE who IN (SELECT who FROM people WHERE town = 'Bern')",
    "in": "SELECT id FROM events WHERE amount IN (SELECT n.id FROM notes n)",
    "not in": "SELECT id FROM events WHERE amount NOT IN (SELECT n.id FROM notes n)",
    "exists": "SELECT id FROM events e WHERE EXISTS (SELECT * FROM notes n WHERE n.id = e.amount)",
    "not exists": "SELECT id FROM events e WHERE NOT EXISTS (SELECT 1 FROM notes n WHERE n.id = e.amount)",
    "correlated": "SELECT e.id, (SELECT max(n.id) FROM notes n WHERE n.id <= e.id) AS last FROM events e",
    "explode": "SELECT id, part FROM events LATERAL VIEW explode(split(who, '')) x AS part",
    "case and filter": "SELECT who, count(*) FILTER (WHERE amount > 2) AS big, sum(CASE WHEN id > 2 THEN 1 ELSE 0 END) AS s FROM events GROUP BY who",
    "self join": "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.who = b.who AND a.id < b.id",
}
ALONE = {
    "limit": "SELECT id FROM events ORDER BY id LIMIT 1",
    "limit inside": "SELECT * FROM (SELECT id FROM events ORDER BY id LIMIT 1)",
    "comma": "SELECT e.id, n.note FROM events e, notes n WHERE e.id = n.id",
    "random": "SELECT id, rand(1) AS r FROM events",
    "rollup": "SELECT who, day, sum(amount) AS s FROM events GROUP BY ROLLUP (who, day)",
    "shared side kept": "SELECT p.who, e.id FROM people p LEFT JOIN events e ON e.who = p.who",
    "shared union": "SELECT who FROM events UNION ALL SELECT who FROM people",
    "aggregate inside": "SELECT t.n FROM (SELECT count(*) AS n FROM events WHERE amount > 100) t",
    "star in a function": "SELECT to_json(struct(*)) AS j FROM events",
    "only shared": "SELECT who FROM people",
}


@pytest.fixture
def days(rig):
    """Makes one task per day for a query; the days have equal ids, so that rows which meet show."""
    people = rig.part(PEOPLE, [("ada", "Bern"), ("bob", "Rome"), ("eve", None)])
    inputs = []
    for number, day in enumerate(DAYS):
        rows = [(i, day, "ada" if (i + number) % 3 else "bob", (i * (number + 2)) % 7) for i in range(1, 7 - number)]
        notes = [(i, day, f"n{i}-{number}") for i in range(number, 4 + number)]
        inputs.append(
            [
                rig.taking("events", rig.part(EVENTS, rows, f"day={day}", files=2)),
                rig.taking("notes", rig.part(NOTES, notes, f"day={day}")),
                rig.taking("people", people),
            ]
        )
    # For one day nothing is left of most filters.
    inputs[2][0] = rig.taking("events", rig.part(EVENTS, [(9, DAYS[2], "eve", 0)], f"day={DAYS[2]}"))

    def made(sql, **target):
        target = rig.target(**({"partition_by": ("day",)} | target))
        return [
            rig.work("spark_sql", {"sql": sql}, given, [target], key=f"day={day}")
            for day, given in zip(DAYS, inputs, strict=True)
        ]

    return made


def _alone(rig, work):
    """The rows that one task gets by itself of another engine, with the partition column where the query has none."""
    with duckdb.connect() as other:
        for one in work.grant.inputs:
            files = [entry for part in one.parts for entry in rig.manifests[part.manifest.sha256].files]
            other.register(one.alias, pa.concat_tables([read_table(rig.lake, entry) for entry in files]))
        query = sqlglot.transpile(work.grant.config["sql"], read="spark", write="duckdb")[0]
        answer = other.sql(query).to_arrow_table()
    day = () if "day" in answer.column_names else (work.grant.partition_key.partition("=")[2],)
    return sorted((tuple(row.values()) + day for row in _int_rows(answer)), key=repr)


def _int_rows(answer):
    """Sums of another engine are decimals."""
    for row in answer.to_pylist():
        yield {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items()}


@pytest.mark.parametrize("sql", SEPARABLE.values(), ids=SEPARABLE.keys())
def test_tasks_together_get_what_each_gets_alone(rig, days, sql):
    """INV-58."""
    works = days(sql)
    results = rig.ok(*works)
    assert {result.metrics.get("alone") for result in results} == {None}
    # A task that has no rows of its own but must answer with one runs by itself.
    assert [result.metrics.get("batch") for result in results] == [
        3,
        3,
        None if "total FROM events WHERE" in sql else 3,
    ]
    for work, result in zip(works, results, strict=True):
        (write,) = result.writes
        assert rig.rows(write) == _alone(rig, work)
        assert write.partition_key == work.grant.partition_key
        assert all(f"commit={result.task_id}-1-" in entry.path for entry in write.files)


@pytest.mark.parametrize(("sql", "reason"), [(sql, why) for why, sql in ALONE.items()], ids=ALONE.keys())
def test_tasks_whose_rows_would_meet_run_beside_each_other(rig, days, sql, reason):
    works = days(sql)[:2]
    results = rig.ok(*works)
    apart = reason == "random"
    assert [result.metrics.get("batch") for result in results] == [None if apart else 2] * 2
    assert [result.metrics.get("beside") for result in results] == [None if apart else True] * 2
    assert [bool(result.metrics.get("alone")) for result in results] == [apart] * 2
    if reason not in ("random", "rollup", "star in a function"):
        for work, result in zip(works, results, strict=True):
            assert rig.rows(*result.writes) == _alone(rig, work)


def test_columns_are_called_together_what_they_are_called_alone(rig, days):
    works = days(
        "SELECT who, sum(amount), rank() OVER (PARTITION BY who ORDER BY sum(amount)) FROM events GROUP BY who"
    )
    (alone,) = rig.ok(works[0])
    together = rig.ok(*works)
    assert [result.writes[0].schema for result in together] == [alone.writes[0].schema] * 3
    assert alone.writes[0].schema[-1].name == "day"


def test_an_interrupted_task_of_a_batch_is_not_begun_and_the_others_are(rig, days):
    works = days("SELECT id FROM events")
    ONGOING.begin(works[1].tag, "")
    ONGOING.interrupt(works[1].tag)
    try:
        results = rig.run(*works)
    finally:
        ONGOING.end(works[1].tag)
    assert [(result.status, result.metrics.get("batch")) for result in results] == [
        ("ok", 2),
        ("interrupted", None),
        ("ok", 2),
    ]


def test_only_the_culprit_of_a_failed_batch_fails(rig, days):
    """INV-58."""
    works = days("SELECT id, 12 / (id - 6) AS share FROM events")
    results = rig.run(*works)
    assert [result.status for result in results] == ["error", "ok", "ok"]
    assert (results[0].error_kind, results[0].retryable) == ("divide_by_zero", False)
    assert "together failed" in results[1].metrics["alone"]


def test_each_task_of_a_batch_has_checks_of_its_own(rig, days):
    checks = [
        {"kind": "unique", "columns": ["who"]},
        {"kind": "row_count", "min": 2},
        {"kind": "sql", "sql": "SELECT * FROM output WHERE amount > 5", "severity": "warn"},
    ]
    works = [
        msgspec.structs.replace(work, grant=msgspec.structs.replace(work.grant, checks=tuple(checks)))
        for work in days("SELECT * FROM events")
    ]
    results = rig.ok(*works)
    assert [result.metrics.get("batch") for result in results] == [3] * 3
    assert [[check.violations for check in result.checks] for result in results] == [[4, 0, 1], [3, 0, 1], [0, 1, 0]]


def test_functions_run_together_once_they_say_so(rig, days, tmp_path, monkeypatch):
    (tmp_path / "doubling.py").write_text(
        "calls = []\n"
        "def run(events, people, notes):\n"
        "    calls.append(1)\n"
        "    return events.selectExpr('id * 2 AS id', 'day')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    works = [
        msgspec.structs.replace(
            work,
            grant=msgspec.structs.replace(
                work.grant, operator="pyspark", config={"function": "doubling:run", "batch": True}
            ),
        )
        for work in days("")
    ]
    results = rig.ok(*works)
    assert [result.metrics.get("batch") for result in results] == [3] * 3
    assert len(sys.modules["doubling"].calls) == 1
    assert rig.rows(*results[2].writes) == [(18, DAYS[2])]
    assert len(rig.rows(*results[0].writes)) == 6
