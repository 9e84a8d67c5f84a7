"""The bare floor of the event lake: a plain PySpark process that reads the ledger's rows by ADBC and writes Parquet.

Each line on stdin is a JSON command; each answer is the seconds it took.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.spark_floor import SparkFloor


async def start() -> SparkFloor:
    """Start the process and wait until its session is up."""
    import asyncio

    from bench.spark_floor import SparkFloor

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.lake_floor", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )  # fmt: skip
    floor = SparkFloor(process)
    await floor._answer()
    return floor


def main() -> None:
    """Serve commands until stdin ends."""
    from noetl.spark.session.java import find_java
    from noetl.spark.session.options import SparkOptions
    from noetl.spark.session.session import configuration

    scratch = Path(tempfile.mkdtemp(prefix="noetl-bench-spark-"))
    options = SparkOptions(home=str(scratch), cache=str(scratch), master="local[*]")
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
    session.dataSource.register(_source())
    print("took 0", flush=True)
    try:
        for number, line in enumerate(sys.stdin):
            began = time.perf_counter()
            told: dict[str, Any] = json.loads(line)
            rows = session.read.format("bare").options(url=told["url"], pieces=json.dumps(told["pieces"])).load()
            rows.write.parquet(str(scratch / f"out-{number}"))
            print(f"took {time.perf_counter() - began}", flush=True)
            shutil.rmtree(scratch / f"out-{number}")
    finally:
        session.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _source() -> Any:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from noetl.spark.source.columns import EVENT_COLUMNS, NAMES, selected

    listed = selected(NAMES)

    class Reader(DataSourceReader):
        def __init__(self, options: Any) -> None:
            self._url = options["url"]
            self._pieces = json.loads(options["pieces"])

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(piece) for piece in self._pieces]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]

            shard, first, last = partition.value
            with dbapi.connect(self._url) as connection, connection.cursor() as cursor:
                cursor.execute(
                    f"SELECT {listed} FROM noetl.event WHERE shard = {shard} AND position BETWEEN {first} AND {last}"
                )
                yield from cursor.fetch_record_batch()

    class Bare(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bare"

        def schema(self) -> str:
            return EVENT_COLUMNS

        def reader(self, schema: Any) -> Reader:
            return Reader(self.options)

    return Bare


if __name__ == "__main__":
    main()
