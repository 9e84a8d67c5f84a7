"""Pipelines of one process, connected to its runtime: what decides about tasks, and a worker that does them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from noetl.catalog.dags import Dags
from noetl.catalog.datasets import Datasets
from noetl.dispatch.engine import Engine
from noetl.dispatch.tasks.engine import TaskEngine
from noetl.pipelines.attempts import OnTask
from noetl.pipelines.by_operator import ByOperator
from noetl.pipelines.in_process import InProcess, Operator
from noetl.pipelines.lake_files import LakeFiles
from noetl.pipelines.operators.noop import NoopOperator
from noetl.pipelines.operators.playbook import PlaybookOperator
from noetl.pipelines.operators.ranges import RangeAggregator, RangeSplitter
from noetl.pipelines.pipelines import Pipelines
from noetl.pipelines.spark_runner import OnSpark
from noetl.pipelines.tables import TableReader, TableWriter
from noetl.pipelines.worker import TaskWorker
from noetl.runtime.engine import producer_of
from noetl.runtime.secrets import LocalSecrets
from noetl.runtime.settings import Settings
from noetl.runtime.spark_settings import spark_options
from noetl.runtime.wiring import Runtime
from noetl.spark.drivers import Drivers
from noetl.spark.lake import Lake

RUNTIMES: Final = ("dispatcher", "spark", "ecs_platform", "ecs_udf")
"""What a worker that is not told otherwise takes; functions of a cloud are invoked, not pulled."""


def lake_of(settings: Settings) -> Lake:
    """Return the lake that the settings name."""
    options = spark_options(settings.spark, settings.lake, settings.runtime.home)
    return Lake(options.lake_root, options.lake_options, options.lake_native)


@asynccontextmanager
async def open_pipelines(runtime: Runtime, role: str = "server", *, drive: bool = True) -> AsyncIterator[Pipelines]:
    """Give the pipelines of this process for the time of the block; outbox and reaper run unless it does not drive."""
    producer = producer_of(runtime, role)
    engine = TaskEngine(
        runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint, runtime.ids.mint_many, producer
    )
    dags = Dags(runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint, producer)
    datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
    pipelines = Pipelines(runtime.scope, dags, datasets, engine)
    if drive:
        engine.start()
    try:
        yield pipelines
    finally:
        await engine.close()


@asynccontextmanager
async def open_task_worker(
    runtime: Runtime,
    pipelines: Pipelines,
    engine: Engine,
    *,
    slots: int = 4,
    runtimes: Sequence[str] = RUNTIMES,
    warm: bool = False,
    on_task: OnTask = lambda grant, status, error: None,
) -> AsyncIterator[TaskWorker]:
    """Give a running worker of tasks for the time of the block; `warm` starts Spark before the first task asks."""
    settings = runtime.settings
    drivers = Drivers(
        spark_options(settings.spark, settings.lake, settings.runtime.home),
        live=settings.spark.drivers,
        isolate=settings.spark.isolation == "organization",
    )
    files = LakeFiles(lake_of(settings))
    reader = TableReader(files)
    operators: dict[str, Operator] = {
        "noop": NoopOperator(),
        "playbook": PlaybookOperator(runtime.scope, engine, runtime.database, runtime.payloads),
        "range_aggregator": RangeAggregator(reader),
        "range_splitter": RangeSplitter(reader),
    }
    runner = ByOperator(operators, InProcess(operators, TableWriter(files)), OnSpark(runtime.scope, drivers))
    worker = TaskWorker(
        f"{producer_of(runtime, 'tasks')}/{socket.gethostname()}",
        runtime.scope,
        pipelines.engine.tasks(runtime.scope),
        runtime.payloads,
        dict.fromkeys(runtimes, runner),
        _Values(LocalSecrets(settings, runtime.database, runtime.scope)),
        slots=slots,
        on_task=on_task,
    )
    if warm:
        drivers.warm()
    running = asyncio.get_running_loop().create_task(worker.run(), name="noetl-task-worker")
    try:
        yield worker
        await worker.stop()
        await running
    finally:
        if not running.done():
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        await drivers.close()


class _Values:
    """Credentials of the organization as a job's secrets."""

    def __init__(self, secrets: LocalSecrets) -> None:
        self._secrets = secrets

    async def values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the data of credentials by name."""
        found = await asyncio.gather(*(self._secrets.credential(name) for name in names))
        return {name: dict(credential.data) for name, credential in zip(names, found, strict=True)}
