"""What a small incremental task costs, from its claim until its output is routed, beside the bare Spark write of its rows."""

from __future__ import annotations

from collections.abc import Collection

from bench.figure import Figure, paired
from bench.pipeline_testbed import open_pipeline_testbed
from bench.spark_floor import SparkFloor

ROUNDS = 9
WARM = 10
SQL = "SELECT id, id % 10 AS bucket, concat('row ', id) AS name FROM input WHERE id % 2 = 0"
INPUT = """
name: input
jobs:
  - {name: numbers, sql: SELECT id FROM range(1000)}
publish: {numbers: numbers}
"""
DAG = f"""
name: task
jobs:
  - name: small
    activation: source
    inputs: [{{from: {{dataset: numbers}}, alias: input}}]
    sql: {SQL}
  - {{name: reader, runtime: dispatcher, operator: noop, outputs: 0, inputs: [small]}}
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure in a session that has run some tasks before, as the floor's has."""
    del wanted
    async with open_pipeline_testbed() as testbed:
        await testbed.deploy(INPUT)
        await testbed.deploy(DAG)
        floor = await SparkFloor.start()
        files = [path for some in (await testbed.files("numbers")).values() for path in some]

        async def ours(_number: int) -> float:
            return await testbed.span(await testbed.emitted("task", "small"), "small")

        async def bare(_number: int) -> float:
            return await floor.seconds(do="query", files=files, sql=SQL)

        for number in range(WARM):
            await ours(number)
            await bare(number)
        mine, base, value = await paired(ours, bare, ROUNDS)
        await floor.stop()
        return [Figure.of("spark-task.wall", value, mine, base, "s", 1.5, "less")]
