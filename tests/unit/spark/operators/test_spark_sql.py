"""The operator `spark_sql`: what it answers, and what it refuses."""

from __future__ import annotations

import pytest

ORDERS = "id bigint;customer string;amount double"
ROWS = [(1, "ada", 10.0), (2, "bob", 5.5), (3, "ada", None)]


def test_a_query_reads_its_inputs_by_alias(rig):
    people = rig.part("name string;town string", [("ada", "Bern"), ("bob", "Rome")])
    found = rig.sql(
        "SELECT o.id, p.town FROM orders o JOIN people p ON o.customer = p.name WHERE o.amount > 6",
        rig.taking("orders", rig.part(ORDERS, ROWS, files=2)),
        rig.taking("people", people),
    )
    assert found == [(1, "Bern")]


def test_a_result_tells_rows_bytes_digest_schema_and_statistics(rig):
    (result,) = rig.ok(
        rig.work(
            "spark_sql", {"sql": "SELECT id, customer FROM orders;"}, [rig.taking("orders", rig.part(ORDERS, ROWS))]
        )
    )
    (write,) = result.writes
    (entry,) = write.files
    assert [(one.name, one.type, one.nullable) for one in write.schema] == [
        ("id", "bigint", True),
        ("customer", "string", True),
    ]
    assert (entry.rows, result.metrics["rows"]) == (3, 3)
    assert entry.stats == {
        "id": {"nulls": 0, "min": 1, "max": 3},
        "customer": {"nulls": 0, "min": "ada", "max": "bob"},
    }
    assert entry.path.startswith(f"made/all/commit={result.task_id}-1-")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE orders",
        "SELECT 1; SELECT 2",
        "INSERT INTO x SELECT * FROM orders",
        "CREATE TABLE x AS SELECT 1",
        "SET spark.sql.ansi.enabled = false",
        "CACHE TABLE orders",
    ],
)
def test_only_one_query_that_reads_is_taken(rig, sql):
    (result,) = rig.run(rig.work("spark_sql", {"sql": sql}, [rig.taking("orders", rig.part(ORDERS, ROWS))]))
    assert (result.status, result.error_kind, result.retryable) == ("error", "input_invalid", False)
    assert "SELECT" in result.error or "only reads" in result.error


@pytest.mark.parametrize("relation", ["order", "parquet.`/etc/passwd`", "default.orders"])
def test_a_relation_that_is_no_input_is_refused_by_name(rig, relation):
    (result,) = rig.run(
        rig.work("spark_sql", {"sql": f"SELECT * FROM {relation}"}, [rig.taking("orders", rig.part(ORDERS, ROWS))])
    )
    assert result.status == "error"
    assert "is no input of the job" in result.error


def test_an_unknown_column_is_told_with_dag_job_and_line(rig):
    (result,) = rig.run(
        rig.work(
            "spark_sql", {"sql": "SELECT id,\n  amuont\nFROM orders"}, [rig.taking("orders", rig.part(ORDERS, ROWS))]
        )
    )
    assert result.error.startswith("dag 'shop', job 'clean', partition 'all': ")
    assert "amuont" in result.error
    assert "line 2, column 3" in result.error
    assert (result.retryable, result.status) == (False, "error")


def test_a_value_that_cannot_be_cast_fails_for_good(rig):
    given = rig.taking("orders", rig.part(ORDERS, ROWS))
    (result,) = rig.run(rig.work("spark_sql", {"sql": "SELECT CAST(customer AS INT) c FROM orders"}, [given]))
    assert (result.status, result.retryable, result.error_kind) == ("error", False, "cast_invalid_input")
    assert len(result.error) < 700


def test_an_operator_nobody_knows_is_refused_with_the_nearest_name(rig):
    (result,) = rig.run(rig.work("spark_sqll", {}))
    assert "did you mean 'spark_sql'" in result.error


def test_a_job_without_inputs_makes_rows(rig):
    assert rig.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(id, name)") == [(1, "a"), (2, "b")]
