"""A small DAG for Spark servers of every kind: functions, their code in executors, queries in a batch, keys and checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import duckdb

from noetl.pipelines.tasks.engine import TaskEngine
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import Row, TestedPipelines, connected, sorted_rows, working
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers

PRICING: Final = """
PERCENT = 20
"""
MODULE: Final = """
import pricing


def orders(spark, context):
    print("making orders of", context.job)
    return spark.range(40).selectExpr("id", "CAST(id % 4 AS STRING) AS day", "id * 3 AS amount")


def priced(orders):
    def each(batches):
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            more = pc.add(batch.column("amount"), pricing.PERCENT)
            yield pa.RecordBatch.from_arrays(
                [batch.column("id"), batch.column("day"), more], names=["id", "day", "amount"]
            )

    return orders.mapInArrow(each, "id bigint, day string, amount bigint")
"""
DAG: Final = """
name: small
jobs:
  - {name: orders, function: "shop:orders", partition_by: [day], unique_key: [id]}
  - {name: priced, function: "shop:priced", inputs: [orders], partition_by: [day]}
  - name: days
    inputs: [priced]
    partition_by: [day]
    sql: SELECT day, count(*) AS orders, sum(amount) AS amount FROM priced GROUP BY day
    checks: [{kind: not_null, columns: [amount]}, {kind: unique, columns: [day]}, {kind: row_count, min: 1}]
  - {name: totals, inputs: [days], sql: "SELECT sum(orders) AS orders, sum(amount) AS amount FROM days"}
publish: [orders, priced, days, totals]
"""


async def assert_built_and_fed(pipelines: TestedPipelines) -> None:
    """Deploy the DAG, compare what it holds with DuckDB's answers, feed it what it has, and compare again."""
    await pipelines.deploy(DAG, shop__py=MODULE, pricing__py=PRICING)
    expected = await asyncio.to_thread(_answers)
    assert {name: await pipelines.rows(name) for name in expected} == expected
    assert (await pipelines.emit("small", "orders")).status == "completed"
    assert await pipelines.rows("orders") == expected["orders"], "rows whose key stands are left out"
    tasks = await pipelines.tasks()
    assert {task.status for task in tasks} <= {"Completed", "Skipped"}
    assert len({task.partition_key for task in tasks if task.job == "days"}) == 4


def _answers() -> dict[str, list[Row]]:
    orders = "SELECT range AS id, CAST(range % 4 AS VARCHAR) AS day, range * 3 AS amount FROM range(40)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW orders AS {orders}")
        connection.execute("CREATE VIEW priced AS SELECT id, day, amount + 20 AS amount FROM orders")
        connection.execute(
            "CREATE VIEW days AS SELECT day, count(*) AS orders, CAST(sum(amount) AS BIGINT) AS amount"
            " FROM priced GROUP BY day"
        )
        connection.execute(
            "CREATE VIEW totals AS SELECT CAST(sum(orders) AS BIGINT) AS orders, CAST(sum(amount) AS BIGINT) AS amount"
            " FROM days"
        )
        names = ("orders", "priced", "days", "totals")
        return {name: sorted_rows(connection.sql(f"FROM {name}").to_arrow_table()) for name in names}


@asynccontextmanager
async def on_server(playbooks: Playbooks, engine: TaskEngine, drivers: SharedDrivers) -> AsyncIterator[TestedPipelines]:
    """Give pipelines whose Spark is that of some drivers; each test has an organization and a lake of its own."""
    lake = Lake(drivers.options.lake_root)
    tested = connected(engine, playbooks.runtime, playbooks.scope, lake, playbooks.home / "dag")
    async with working(tested, drivers):
        yield tested
