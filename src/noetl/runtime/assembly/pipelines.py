"""Pipelines of one process, connected to its runtime: what decides about tasks, and a worker that does them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.polling import Signal
from noetl.engine.tools.port import Credentials
from noetl.kernel.outgoing.guard import Reach
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.registry import Dags
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.operators.noop import NoopOperator
from noetl.pipelines.operators.playbook import PlaybookOperator
from noetl.pipelines.operators.ranges import RangeAggregator, RangeSplitter
from noetl.pipelines.operators.udf import UdfOperator
from noetl.pipelines.operators.webhook import WebhookOperator
from noetl.pipelines.pipelines import Pipelines
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tables.partitions import TableReader, TableWriter
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.functions.aws import LambdaInvoker
from noetl.pipelines.tasks.functions.http import HttpInvoker
from noetl.pipelines.tasks.functions.runner import FunctionRunner, Invokers
from noetl.pipelines.tasks.port import Tasks
from noetl.pipelines.tasks.wakeups.port import Wakeups
from noetl.pipelines.tasks.wakeups.postgres import PostgresWakeups
from noetl.pipelines.tasks.wakeups.sqs import SqsWakeups
from noetl.pipelines.worker.attempts import OnTask
from noetl.pipelines.worker.in_process import InProcess, Operator
from noetl.pipelines.worker.on_spark import ByOperator, OnSpark
from noetl.pipelines.worker.worker import TaskWorker
from noetl.runtime.assembly.alerts import alert_operators
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.confinement import hide_secrets
from noetl.runtime.outgoing import rights_of
from noetl.runtime.secrets import LocalSecrets
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.wiring import Runtime
from noetl.spark.drivers.pool import Drivers
from noetl.spark.lake.integrity.proofs import node_proofs
from noetl.spark.lake.storage import Lake

RUNTIMES: Final = ("dispatcher", "spark", "ecs_platform", "ecs_udf")
"""What a worker that is not told otherwise takes; functions of a cloud are invoked, not pulled."""


def lake_of(settings: Settings) -> Lake:
    """Return the lake that the settings name."""
    options = spark_options(settings.spark, settings.lake, settings.runtime.home)
    return Lake(options.lake_root, options.lake_options, options.lake_native)


def files_of(settings: Settings) -> LakeFiles:
    """Return the files of the lake, with what was proven of them on this node."""
    lake = lake_of(settings)
    return LakeFiles(lake, node_proofs(settings.runtime.home, lake))


@asynccontextmanager
async def open_pipelines(runtime: Runtime, role: str = "server", *, drive: bool = True) -> AsyncIterator[Pipelines]:
    """Give the pipelines of this process for the time of the block; outbox and reaper run unless it does not drive."""
    producer = producer_of(runtime, role)
    signal = Signal()
    engine = TaskEngine(
        runtime.database,
        runtime.ledger,
        runtime.payloads,
        runtime.ids.mint,
        runtime.ids.mint_many,
        producer,
        signal=signal,
        wakeups=_wakeups(runtime, signal),
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


def _wakeups(runtime: Runtime, signal: Signal) -> Wakeups:
    own = runtime.settings.tasks
    if own.wakeups == "sqs":
        return SqsWakeups(
            own.queue_urls(),
            signal,
            region=own.region,
            endpoint_url=own.endpoint_url,
            receive_seconds=own.receive_seconds,
        )
    return PostgresWakeups(runtime.database, signal)


@asynccontextmanager
async def open_functions(runtime: Runtime, pipelines: Pipelines) -> AsyncIterator[None]:
    """Hand tasks of the runtime `lambda` to their functions for the time of the block."""
    own, scope = runtime.settings.tasks, runtime.scope
    rights = rights_of(runtime.settings, runtime.database)

    async def reach() -> Reach:
        return (await rights(scope)).reach

    async def granted() -> None:
        (await rights(scope)).check("lambda", scope)

    invokers = Invokers(
        {
            "url": HttpInvoker(reach=reach),
            "function": LambdaInvoker(region=own.region, endpoint_url=own.endpoint_url, granted=granted),
        }
    )
    runner = FunctionRunner(producer_of(runtime, "functions"), pipelines.engine.tasks(runtime.scope), invokers)
    runner.start()
    try:
        yield
    finally:
        await runner.stop()
        await invokers.close()


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
    playbook = PlaybookOperator(runtime.scope, engine, runtime.database, runtime.payloads)
    async with task_worker(
        producer_of(runtime, "tasks"),
        runtime.settings,
        runtime.scope,
        pipelines.engine.tasks(runtime.scope),
        runtime.payloads,
        LocalSecrets(runtime.settings, runtime.database, runtime.scope),
        {"playbook": playbook, **alert_operators(runtime, TableReader(files_of(runtime.settings)))},
        slots=slots,
        runtimes=runtimes,
        warm=warm,
        on_task=on_task,
    ) as worker:
        yield worker


@asynccontextmanager
async def task_worker(
    name: str,
    settings: Settings,
    scope: Scope,
    tasks: Tasks,
    payloads: PayloadStore,
    credentials: Credentials,
    more: Mapping[str, Operator],
    *,
    slots: int,
    runtimes: Sequence[str],
    warm: bool = False,
    on_task: OnTask = lambda grant, status, error: None,
) -> AsyncIterator[TaskWorker]:
    """Give a running worker of tasks, however they are handed out; `more` are operators that need more than files."""
    await asyncio.to_thread(hide_secrets, settings)
    drivers = Drivers(
        spark_options(settings.spark, settings.lake, settings.runtime.home),
        live=settings.spark.drivers,
        isolate=settings.spark.isolation == "organization",
    )
    files = files_of(settings)
    reader = TableReader(files)
    operators: dict[str, Operator] = {
        "noop": NoopOperator(),
        "range_aggregator": RangeAggregator(reader),
        "range_splitter": RangeSplitter(reader),
        "udf": UdfOperator(reader),
        "webhook": WebhookOperator(scope, payloads),
        **more,
    }
    runner = ByOperator(operators, InProcess(operators, TableWriter(files)), OnSpark(scope, drivers))
    worker = TaskWorker(
        name,
        scope,
        tasks,
        payloads,
        dict.fromkeys(runtimes, runner),
        _Values(credentials),
        slots=slots,
        drain_seconds=settings.sources.drain_seconds,
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

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the data of credentials by name."""
        found = await asyncio.gather(*(self._credentials.credential(name) for name in names))
        return {name: dict(credential.data) for name, credential in zip(names, found, strict=True)}
