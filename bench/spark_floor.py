"""The bare floor of Spark figures: a plain PySpark script in a process of its own that does what it is told on stdin.

Each line is a JSON command; each answer is the seconds it took. The session has the same settings as our drivers.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class SparkFloor:
    """The process, seen from the benchmark."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, master: str = "local[*]") -> SparkFloor:
        """Start it and wait until its session is up."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.spark_floor", master,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        floor = cls(process)
        await floor._answer()
        return floor

    async def seconds(self, **command: Any) -> float:
        """Run one command and return the seconds it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._answer()

    async def _answer(self) -> float:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.startswith(b"took "):
                return float(line.split()[1])
        raise RuntimeError("the bare Spark process ended")

    async def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


def main(master: str) -> None:
    """Serve commands until stdin ends."""
    from noetl.spark.session.java import find_java
    from noetl.spark.session.options import SparkOptions
    from noetl.spark.session.session import configuration

    scratch = Path(tempfile.mkdtemp(prefix="noetl-bench-spark-"))
    options = SparkOptions(home=str(scratch), cache=str(scratch), master=master)
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
        for number, line in enumerate(sys.stdin):
            command = json.loads(line)
            began = time.perf_counter()
            DOES[command.pop("do")](session, scratch / f"out-{number}", **command)
            print(f"took {time.perf_counter() - began}", flush=True)
    finally:
        session.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def query(session: Any, out: Path, files: list[str], sql: str, *, checksums: bool = False) -> None:
    """Read files, run one query over them as `input`, write Parquet; with page checksums verified and written, or without."""
    from noetl.spark.lake.reader import VERIFY_PAGES
    from noetl.spark.lake.writer import WRITE_CHECKSUMS

    told = str(checksums).lower()
    session.read.option(VERIFY_PAGES, told).parquet(*files).createOrReplaceTempView("input")
    session.sql(sql).write.option(WRITE_CHECKSUMS, told).parquet(str(out))


def queries(session: Any, out: Path, each: list[list[str]], sql: str) -> None:
    """Do that for several sets of files, one after another."""
    for number, files in enumerate(each):
        query(session, out / str(number), files, sql)


def make(session: Any, out: Path, sql: str, path: str) -> None:
    """Write the rows of a query where the caller says."""
    session.sql(sql).write.parquet(path)


def frames(session: Any, out: Path, rows: int, frame_rows: int, work_ms: float, slots: int) -> None:
    """Work rows off in a bare mapInArrow, waiting as long for each as the measured work takes."""

    def work(batches: Any) -> Any:
        import time as clock

        for batch in batches:
            for _ in range(batch.num_rows):
                until = clock.perf_counter() + work_ms / 1000
                while clock.perf_counter() < until:
                    pass
            yield batch

    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(frame_rows))
    session.range(0, rows, 1, slots).mapInArrow(work, "id long").write.parquet(str(out))


DOES: dict[str, Callable[..., None]] = {"query": query, "queries": queries, "make": make, "frames": frames}

if __name__ == "__main__":
    main(sys.argv[1])
