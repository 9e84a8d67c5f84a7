"""What the driver process runs: batches of works of one job, and making a write unique against what landed since."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from noetl.spark.drivers.ongoing_work import Interrupted, working
from noetl.spark.drivers.protocol import MakeUnique, WorkResult
from noetl.spark.lake.storage import Lake
from noetl.spark.operators.attempt import ended_well, place_of, task_session
from noetl.spark.operators.batch import run_batch
from noetl.spark.operators.failures import failed
from noetl.spark.operators.uniqueness import unique_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["make_unique", "run_batch"]


def make_unique(session: SparkSession, message: MakeUnique, lake: Lake) -> WorkResult:
    """Return a write again without the rows whose key landed by another commit after the write was compared."""
    work, landed, since = message.work, message.landed, time.perf_counter()
    try:
        with working(session, [work.tag]):
            own = task_session(session, work)
            target = next(one for one in work.grant.targets if one.output == message.write.output)
            standing = landed.added_since(message.write.base_version)
            write = msgspec.structs.replace(message.write, base_version=landed.version)
            unique = unique_write(own, write, standing, landed.schema, target, place_of(work), lake)
            return ended_well(work, [unique], [], since)
    except (Exception, Interrupted) as error:
        return failed(work, error)
