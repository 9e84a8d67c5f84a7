"""Where a stream keeps what Spark writes ahead, proven to be shared, and the mark that stands there for a batch.

It is disposable: how far the lake has come is what the ledger says.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from noetl.errors import ConfigError, Corrupt
from noetl.model.mark import Mark
from noetl.spark.lake.storage import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARK: Final = re.compile(r'mark\\*"\s*:\s*\\*"(m1\.[A-Za-z0-9_-]+)')
_TASKS_PER_CORE: Final = 2


def checkpoint_address(lake: Lake, given: str | None, name: str) -> str:
    """Return where a stream keeps its checkpoint: in the lake itself, or below what the settings name.

    Raises ConfigError where the lake is in a store that Spark does not reach by itself and nothing else is named.
    """
    if given is not None:
        return f"{given.rstrip('/')}/{name}"
    if not lake.native:
        raise ConfigError(
            f"Spark has no connector for the lake {lake.root}, so it cannot keep the checkpoint of a stream there",
            hint="set event_lake.checkpoint to a directory that the driver and all executors share, or lake.connector",
        )
    return lake.address(name)


def prove_shared(session: SparkSession, address: str) -> None:
    """Refuse a checkpoint that executors do not see; a store has one view for all, a directory may not."""
    directory = local_directory(address)
    if directory is None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        proof = directory / f".shared-{uuid.uuid4().hex}"
        proof.touch()
    except OSError as problem:
        raise ConfigError(
            f"the checkpoint {directory} cannot be written: {problem.strerror}",
            hint="set event_lake.checkpoint to a directory that the driver and all executors share",
        ) from problem
    try:
        context = session.sparkContext
        if (context.master or "").startswith("local"):
            return
        tasks = _TASKS_PER_CORE * context.defaultParallelism
        looks = session.range(0, tasks, 1, tasks).mapInArrow(partial(_seen, str(proof)), "seen boolean")
        if looks.filter("NOT seen").count():
            raise ConfigError(
                f"the checkpoint {directory} is not seen by all executors of {context.master}",
                hint="set event_lake.checkpoint, or lake.location, to a place that the driver and all executors share",
            )
    finally:
        proof.unlink()


def planned_mark(session: SparkSession, address: str, batch: int) -> Mark | None:
    """Return the mark up to which Spark planned a batch before it began; None if it planned none of that number."""
    text = _text(session, f"{address}/offsets/{batch}")
    if text is None:
        return None
    found = _MARK.search(text)
    if found is None:
        raise Corrupt(
            f"the checkpoint {address} does not say up to where batch {batch} goes",
            hint="remove it: the stream then goes on from what the ledger says",
        )
    return Mark.parse(found[1])


def local_directory(address: str) -> Path | None:
    """Return the directory that an address names, if it is one of this machine."""
    if "://" not in address:
        return Path(address)
    return Path(address.removeprefix("file://")) if address.startswith("file://") else None


def _text(session: SparkSession, address: str) -> str | None:
    directory = local_directory(address)
    if directory is not None:
        return directory.read_text() if directory.exists() else None
    context: Any = session.sparkContext
    jvm = context._jvm
    path = jvm.org.apache.hadoop.fs.Path(address)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _seen(proof: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"seen": [Path(proof).exists()] * batch.num_rows})
