"""The Python of jobs that lose what runs them, or wait for each other: one module, so that one driver serves them all."""

from __future__ import annotations

from typing import Final

MODULE: Final = """
import os
import signal
import time
from pathlib import Path


def driver_lost(spark, context):
    Path(context.config["told"], "driver").write_text(str(os.getpid()))
    return _numbers(spark, context, dies=False)


def worker_lost(spark, context):
    return _numbers(spark, context, dies=True)


def _numbers(spark, context, dies):
    told, first = context.config["told"], context.attempt == 1

    def each(batches):
        yield from batches
        if first:
            with Path(told, "worker").open("a") as file:
                file.write(f"{os.getpid()}\\n")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)

    return spark.range(6).selectExpr("id", "id % 2 AS part").mapInArrow(each, "id bigint, part bigint")


def append(spark, context):
    told = Path(context.config["told"])
    (told / str(context.execution_id)).touch()
    while not (told / "key").exists():
        time.sleep(0.02)
    return spark.createDataFrame([(int((told / "key").read_text()), context.execution_id)], "id bigint, run bigint")
"""
