"""What asking costs beyond the answer: the whole way of a query, warm, beside bare DuckDB on the same files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from bench.figure import Figure, alternating
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from noetl.model.task import PartitionWrite, TaskReport
from noetl.pipelines.tables.column_types import fields_of
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.runtime.assembly.pipelines import lake_of
from noetl.runtime.assembly.queries import open_queries
from noetl.services.query.access import Asker
from noetl.services.query.queries import Queries
from noetl.services.query.question import Question
from noetl.spark.lake.storage import commit_directory

DAYS: Final = 20
ROWS_OF_A_DAY: Final = 50_000
ROUNDS: Final = 15
DAG: Final = """
name: market
jobs:
  - {name: sales, sql: "SELECT 1 AS day", partition_by: [day]}
publish: [sales]
"""
QUESTIONS: Final = (
    "SELECT region, sum(amount) AS amount, count(*) AS sales FROM {sales} GROUP BY region ORDER BY region",
    "SELECT day, region, amount FROM {sales} WHERE day = 7 AND amount > 990 ORDER BY amount DESC, sale LIMIT 100",
    "WITH best AS (SELECT day, max(amount) AS top FROM {sales} GROUP BY day)"
    " SELECT s.day, count(*) AS many FROM {sales} AS s JOIN best AS b ON s.day = b.day AND s.amount > b.top - 10"
    " GROUP BY s.day ORDER BY s.day",
)


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure the milliseconds that a query takes beyond bare DuckDB, on average over the questions."""
    del wanted
    async with open_pipeline_testbed(worker=False) as testbed:
        await built(testbed)
        files = [path for paths in (await testbed.files("sales")).values() for path in paths]
        async with open_queries(testbed.runtime, "bench") as queries:
            with duckdb.connect() as bare:
                listed = ", ".join(f"'{path}'" for path in files)

                async def ours(_number: int) -> float:
                    return await asked(testbed, queries)

                async def floor(_number: int) -> float:
                    return await asyncio.to_thread(_bare, bare, f"read_parquet([{listed}])")

                for _ in range(3):
                    await ours(0)
                    await floor(0)
                mine, base = await alternating(ours, floor, ROUNDS)
    return [Figure.of("query.overhead_ms", mine - base, mine, base, "ms", 50, "less")]


async def built(testbed: PipelineTestbed) -> None:
    """Build the dataset by hand, in the place of a worker."""
    deploying = asyncio.create_task(testbed.deploy(DAG))
    tasks = testbed.pipelines.engine.tasks(testbed.runtime.scope)
    while not (grants := await tasks.claim("builder", ("spark",), 1, 10)):
        continue
    (grant,) = grants
    files = LakeFiles(lake_of(testbed.runtime.settings))
    target, writes = grant.targets[0], []
    for day in range(DAYS):
        rows = _rows(day)
        folder = commit_directory(target.location, f"day={day}", grant.lease.task_id, grant.lease.attempt, "bench")
        entry = await files.write(folder, rows)
        writes.append(
            PartitionWrite(output=0, partition_key=f"day={day}", schema=fields_of(rows.schema), files=(entry,))
        )
    await tasks.complete(grant, TaskReport(status="ok", writes=tuple(writes)))
    await deploying


def _rows(day: int) -> pa.Table:
    numbers = pa.array(range(day * ROWS_OF_A_DAY, (day + 1) * ROWS_OF_A_DAY), pa.int64())
    spread = pc.bit_wise_and(pc.multiply(numbers, 2_654_435_761), 1023)
    regions = pa.array([f"region {one % 12}" for one in range(ROWS_OF_A_DAY)])
    return pa.table(
        {
            "day": pa.array([day] * ROWS_OF_A_DAY, pa.int32()),
            "sale": numbers,
            "region": regions,
            "amount": pc.cast(spread, pa.float64()),
        }
    )


async def asked(testbed: PipelineTestbed, queries: Queries) -> float:
    """Ask every question and return the milliseconds that one took on average."""
    asker = Asker(scope=testbed.runtime.scope, name="bench", admin=True)
    began = time.perf_counter()
    for text in QUESTIONS:
        answer = await queries.ask(asker, Question(sql=text.format(sales="sales")))
        assert answer.table.num_rows
    return (time.perf_counter() - began) * 1000 / len(QUESTIONS)


def _bare(connection: duckdb.DuckDBPyConnection, sales: str) -> float:
    began = time.perf_counter()
    for text in QUESTIONS:
        assert connection.sql(text.format(sales=sales)).to_arrow_table().num_rows
    return (time.perf_counter() - began) * 1000 / len(QUESTIONS)
