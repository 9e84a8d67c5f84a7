"""The lineage of Spark's plans: it agrees with the tree of the SQL, and code that nobody can look into is opaque."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType
from tests.unit.language.columns.corpus import CORPUS, INPUTS
from tests.unit.language.columns.tpch_files import QUERIES, tables

from noetl.language.columns.plan.lineage import plan_lineage
from noetl.language.columns.sql.lineage import query_lineage
from noetl.model.lineage import Lineage
from noetl.spark.operators.lineage import marked

from .conftest import Rig


def empty(spark: SparkSession, given: Mapping[str, Mapping[str, str]]) -> dict[str, DataFrame]:
    """Return marked inputs without rows."""
    return {
        alias: marked(
            spark.createDataFrame(
                [], StructType([StructField(name, DataType.fromDDL(kind)) for name, kind in columns.items()])
            ),
            alias,
        )
        for alias, columns in given.items()
    }


def of_plan(rows: DataFrame, inputs: Mapping[str, Any], *, from_code: bool = True) -> Lineage:
    text = rows._jdf.queryExecution().analyzed().toJSON()
    return plan_lineage(text, list(inputs), rows.columns, from_code=from_code)


def sources(found: Lineage, column: str | None) -> set[str]:
    edges = [edge for edge in found.edges if edge.column == column]
    return {f"{edge.source}.{edge.source_column or '*'} {edge.kind}" for edge in edges}


def disagreements(spark: SparkSession, given: Mapping[str, Mapping[str, str]], queries: Mapping[str, str]) -> list[str]:
    own = spark.newSession()
    inputs = empty(own, given)
    for alias, rows in inputs.items():
        rows.createOrReplaceTempView(alias)
    found = []
    for name, sql in queries.items():
        rows = own.sql(sql)
        by_tree = query_lineage(sql, {alias: list(columns) for alias, columns in given.items()}, rows.columns)
        by_plan = of_plan(rows, inputs, from_code=False)
        if by_tree.edges != by_plan.edges:
            found.append(
                f"{name}: only the tree {sorted(map(str, set(by_tree.edges) - set(by_plan.edges)))}, "
                f"only the plan {sorted(map(str, set(by_plan.edges) - set(by_tree.edges)))} {by_plan.reason}"
            )
    return found


def test_plan_and_tree_agree_on_the_corpus(spark: SparkSession) -> None:
    """INV-73."""
    assert disagreements(spark, INPUTS, CORPUS) == []


def test_plan_and_tree_agree_on_tpch(spark: SparkSession) -> None:
    """INV-73."""
    assert disagreements(spark, tables(), QUERIES) == []


@pytest.fixture
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return empty(spark, INPUTS)


def test_a_dataframe_is_followed_like_sql(frames: dict[str, DataFrame]) -> None:
    orders, customers = frames["orders"], frames["customers"]
    ranked = orders.withColumn("r", F.row_number().over(Window.partitionBy("c_id").orderBy("day")))
    made = (
        ranked.filter("r = 1")
        .join(customers, "c_id")
        .groupBy("name")
        .agg(F.sum("amount").alias("total"), F.count(F.lit(1)).alias("n"))
        .withColumn("twice", F.col("total") * 2)
        .dropDuplicates(["name"])
    )
    found = of_plan(made, frames)
    assert found.how == "plan"
    assert sources(found, "name") == {"customers.name direct"}
    assert sources(found, "total") == sources(found, "twice") == {"orders.amount aggregated"}
    assert sources(found, "n") == {"orders.* aggregated", "customers.* aggregated"}
    assert sources(found, None) == {
        "orders.c_id indirect",
        "orders.day indirect",
        "customers.c_id indirect",
        "customers.name indirect",
    }


def test_a_pivot_and_its_reverse_are_followed(frames: dict[str, DataFrame]) -> None:
    wide = frames["orders"].groupBy("c_id").pivot("note", ["a", "b"]).sum("amount")
    assert sources(of_plan(wide, frames), "a") == {"orders.amount aggregated", "orders.note aggregated"}
    long = frames["orders"].unpivot(["note"], ["o_id", "c_id"], "name", "value")
    assert sources(of_plan(long, frames), "value") <= {"orders.o_id direct", "orders.c_id direct", "orders.* opaque"}
    assert sources(of_plan(long, frames), "note") == {"orders.note direct"}


def test_a_function_of_columns_is_opaque_for_those(frames: dict[str, DataFrame]) -> None:
    """INV-74."""
    shout = F.udf(lambda text: text, "string")
    found = of_plan(frames["orders"].select("o_id", shout("note").alias("loud")), frames)
    assert sources(found, "o_id") == {"orders.o_id direct"}
    assert sources(found, "loud") == {"orders.note opaque"}


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.mapInArrow(lambda batches: batches, "a bigint, b string"),
        lambda rows: rows.mapInPandas(lambda frames: frames, "a bigint, b string"),
        lambda rows: rows.groupBy("c_id").applyInPandas(lambda frame: frame, "a bigint, b string"),
    ],
)
def test_code_over_rows_is_opaque_for_all_it_reads(
    frames: dict[str, DataFrame], change: Callable[[DataFrame], DataFrame]
) -> None:
    """INV-74."""
    found = of_plan(change(frames["orders"]), frames)
    assert sources(found, "a") == sources(found, "b") == {"orders.* opaque"}


def test_rows_that_code_brought_back_may_come_from_every_input(
    spark: SparkSession, frames: dict[str, DataFrame]
) -> None:
    """INV-74."""
    collected = [(row.o_id,) for row in frames["orders"].collect()]
    made = spark.createDataFrame(collected, "x bigint")
    assert sources(of_plan(made, frames), "x") == {"orders.* opaque", "customers.* opaque"}


def test_a_plan_that_cannot_be_read_is_opaque() -> None:
    """INV-74."""
    found = plan_lineage("[]", ["orders"], ["a"])
    assert (found.how, sources(found, "a")) == ("opaque", {"orders.* opaque"})


def test_a_task_tells_its_lineage(rig: Rig) -> None:
    orders = rig.taking("orders", rig.part("id bigint; amount double; day date", [(1, 2.5, None)]))
    sql = "SELECT id, sum(amount) AS total FROM orders WHERE day IS NULL GROUP BY id"
    (result,) = rig.ok(rig.work("spark_sql", {"sql": sql}, [orders]))
    found = result.lineage[0]
    assert found.how == "sql"
    assert sources(found, "total") == {"orders.amount aggregated"}
    assert sources(found, None) == {"orders.day indirect", "orders.id indirect"}


def test_tasks_that_run_together_tell_the_lineage_of_one(rig: Rig) -> None:
    target = rig.target(partition_by=("day",))
    works = [
        rig.work(
            "spark_sql",
            {"sql": "SELECT id, day, max(id) OVER () AS most FROM orders"},
            [rig.taking("orders", rig.part("id bigint; day string", [(n, f"d{n}")], f"day=d{n}"))],
            [target],
            key=f"day=d{n}",
        )
        for n in range(3)
    ]
    results = rig.ok(*works)
    assert {result.metrics.get("batch") for result in results} == {3}
    assert len({result.lineage[0].digest for result in results}) == 1
    assert sources(results[0].lineage[0], "most") == {"orders.id aggregated"}
    assert sources(results[0].lineage[0], None) == set()


def test_lineage_that_fails_to_be_told_fails_no_task(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-74."""

    def broken(rows: DataFrame) -> str:
        raise RuntimeError("the JVM said no")

    monkeypatch.setattr("noetl.spark.operators.lineage._plan", broken)
    orders = rig.taking("orders", rig.part("id bigint", [(1,)]))
    (result,) = rig.ok(rig.work("spark_sql", {"sql": "SELECT id AS never_seen_before FROM orders"}, [orders]))
    found = result.lineage[0]
    assert (found.how, found.reason) == ("unknown", "RuntimeError: the JVM said no")
    assert sources(found, "never_seen_before") == {"orders.* opaque"}
