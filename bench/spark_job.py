"""What a large job costs beside the same plain PySpark script: five million rows read, more than four million written."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from pathlib import Path

from bench.figure import Figure, paired
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from bench.spark_floor import SparkFloor

ROWS = 5_000_000
ROUNDS = 7
SQL = "SELECT id, id % 1000 AS bucket, value * 2 AS doubled, concat('row ', id) AS name FROM input WHERE id % 6 <> 0"
INPUT = f"""
name: input
jobs:
  - name: numbers
    sql: SELECT id, CAST(rand(7) * 1000 AS int) AS value FROM range({ROWS})
publish: {{numbers: numbers}}
"""
DAG = f"""
name: job
jobs:
  - name: large
    activation: source
    inputs: [{{from: {{dataset: numbers}}, alias: input}}]
    sql: {SQL}
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure on local files, and on an object store through our own reader and writer."""
    measures = {"spark-job.wall": _on_files, "spark-job.obstore": _on_obstore}
    return [await measures[name]() for name in wanted]


async def _on_files() -> Figure:
    async with open_pipeline_testbed() as testbed:
        return await _measured("spark-job.wall", testbed, 1.1)


async def _on_obstore() -> Figure:
    from noetl.testing.servers.s3 import running_s3

    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="noetl-bench-s3-"))
        server = stack.enter_context(running_s3(Path(folder)))
        lake = {
            "location": f"s3://{server.bucket}/lake",
            "endpoint": server.endpoint,
            "access_key": server.access_key,
            "secret_key": server.secret_key,
            "allow_http": True,
        }
        testbed = await stack.enter_async_context(open_pipeline_testbed(lake=lake))
        # The floor has no connector either, so it works on files; both are this machine's disk in the end.
        return await _measured("spark-job.obstore", testbed, 2.0, own_files=True)


async def _measured(name: str, testbed: PipelineTestbed, bar: float, *, own_files: bool = False) -> Figure:
    await testbed.deploy(INPUT)
    await testbed.deploy(DAG)
    floor = await SparkFloor.start()
    with tempfile.TemporaryDirectory(prefix="noetl-bench-input-") as folder:
        if own_files:
            source = f"SELECT id, CAST(rand(7) * 1000 AS int) AS value FROM range({ROWS})"
            out = str(Path(folder, "input"))
            await floor.seconds(do="make", sql=source, path=out)
            files = [out]
        else:
            files = [path for some in (await testbed.files("numbers")).values() for path in some]

        async def ours(_number: int) -> float:
            began = time.perf_counter()
            await testbed.emitted("job", "large")
            return time.perf_counter() - began

        async def bare(_number: int) -> float:
            return await floor.seconds(do="query", files=files, sql=SQL)

        for warm in range(2):
            await ours(warm)
            await bare(warm)
        mine, base, value = await paired(ours, bare, ROUNDS)
    await floor.stop()
    return Figure.of(name, value, mine, base, "s", bar, "less")
