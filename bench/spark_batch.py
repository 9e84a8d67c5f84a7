"""What two hundred small tasks of one job cost beside two hundred bare Spark jobs, one after another in a warm session."""

from __future__ import annotations

from collections.abc import Collection

from bench.figure import Figure, paired
from bench.pipeline_testbed import open_pipeline_testbed
from bench.spark_floor import SparkFloor

TASKS = 200
ROWS = 1_000
WARM = 100
ROUNDS = 3
SEPARABLE = "SELECT day, bucket, count(*) AS n, sum(value) AS total FROM input GROUP BY day, bucket"
OTHER = "SELECT day, bucket, value FROM input ORDER BY value, bucket LIMIT 100"
DAG = """
name: batch
jobs:
  - name: events
    function: events:made
    partition_by: [day]
  - name: work
    inputs: [{{from: {{job: events}}, alias: input}}]
    partition_by: [day]
    sql: {sql}
publish: {{events: events}}
"""
EVENTS = f"""
from pyspark.sql import functions as f


def made(spark):
    rows = spark.range({TASKS * ROWS})
    return rows.select(
        (f.col("id") % {TASKS}).cast("int").alias("day"),
        (f.col("id") % 7).alias("bucket"),
        # Other values each time, or the work would be known to be done.
        (f.rand() * 1000000).cast("long").alias("value"),
    )
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure tasks that can share one Spark job, and tasks that cannot."""
    shapes = {"spark-batch.wall": (SEPARABLE, 0.2), "spark-batch.other": (OTHER, 0.7)}
    return [await _measured(name, *shapes[name]) for name in wanted]


async def _measured(name: str, sql: str, bar: float) -> Figure:
    async with open_pipeline_testbed() as testbed:
        await testbed.deploy(DAG.format(sql=sql), events=EVENTS)
        floor = await SparkFloor.start()
        each = list((await testbed.files("events")).values())

        async def ours(_number: int) -> float:
            return await testbed.span(await testbed.emitted("batch", "events"), "work")

        async def bare(_number: int) -> float:
            return await floor.seconds(do="queries", each=each, sql=sql)

        await ours(0)
        await floor.seconds(do="queries", each=each[:WARM], sql=sql)
        mine, base, value = await paired(ours, bare, ROUNDS)
        await floor.stop()
        return Figure.of(name, value, mine, base, "s", bar, "less")
