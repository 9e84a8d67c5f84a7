"""The bare floor of views: a plain foreachBatch with the same query, in a process of its own, told what to do on stdin.

Each line names a round and the mark to come to; the answer is the median of the milliseconds a batch took.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

SKIPPED: Final = 2
"""The first batches of a query, which compile it."""
_MAKE: Final = "CREATE TABLE IF NOT EXISTS public.bare_view (key text PRIMARY KEY, value jsonb NOT NULL)"
_PUT: Final = """
INSERT INTO public.bare_view SELECT * FROM unnest(%s::text[], %s::jsonb[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


class ViewsFloor:
    """The process, seen from the benchmark."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, **told: Any) -> ViewsFloor:
        """Start it and wait until its session is up."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.views_floor", json.dumps(told),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        floor = cls(process)
        await floor._answer()
        return floor

    async def batch_ms(self, number: int) -> float:
        """Run the query over everything and return how long a batch took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        await self._process.stdin.drain()
        return await self._answer()

    async def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _answer(self) -> float:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.startswith(b"took "):
                return float(line.split()[1])
        raise RuntimeError("the bare Spark process ended")


def main(told: dict[str, Any]) -> None:
    """Serve rounds until stdin ends."""
    from noetl.spark.session.java import find_java
    from noetl.spark.session.options import SparkOptions
    from noetl.spark.session.session import configuration

    scratch = Path(tempfile.mkdtemp(prefix="noetl-bench-views-"))
    options = SparkOptions(home=str(scratch), cache=str(scratch), master=told["master"], conf=told["conf"])
    os.environ |= {
        "JAVA_HOME": str(find_java(scratch).home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in configuration(options, scratch).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    print("took 0", flush=True)
    try:
        for line in sys.stdin:
            print(f"took {_round(session, told, scratch / line.strip())}", flush=True)
    finally:
        session.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _round(session: Any, told: dict[str, Any], checkpoint: Path) -> float:
    import psycopg

    ended: list[float] = []
    with psycopg.connect(told["owner_url"], autocommit=True) as connection:
        connection.execute(_MAKE)

        def write(rows: Any, _batch: int) -> None:
            found = rows.selectExpr("to_json(struct(worker)) AS key", "to_json(struct(*)) AS value").toArrow()
            columns = [found.column(name).to_pylist() for name in ("key", "value")]
            connection.execute(_PUT, columns)
            ended.append(time.perf_counter())

        events = session.readStream.format("noetl").schema(told["columns"]).options(**told["options"]).load()
        events.createOrReplaceTempView("events")
        writing = session.sql(told["sql"]).writeStream.foreachBatch(write).outputMode("update")
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
    return median_ms(ended)


def median_ms(ended: list[float]) -> float:
    """Return the median milliseconds from the end of one batch to the end of the next, once it is warm."""
    steps = [after - before for before, after in itertools.pairwise(ended)]
    return statistics.median(steps[SKIPPED:]) * 1000


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
