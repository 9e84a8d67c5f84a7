"""A pytest plugin: `pipelines` builds datasets for real, with an engine and a worker of tasks on the test's ledger.

Jobs of the operator `made` run in this process: the test says what sources give, `query` is DuckDB's SQL over the
inputs. Other jobs run on Spark, for tests that ask for `spark_pipelines`. After the test, replay equals the live rows.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import duckdb
import msgspec
import pyarrow as pa
import pytest

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import NotFound
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant
from noetl.pipelines.catalog.dags.bundles import Bundle, read_bundle
from noetl.pipelines.catalog.dags.registry import Dags, Deployed
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.catalog.datasets.rows import DatasetView
from noetl.pipelines.operators.webhook import WebhookOperator
from noetl.pipelines.pipelines import Cutover, Pipelines
from noetl.pipelines.tables.column_types import schema_of
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tables.partitions import TableReader, TableWriter
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.rows import TaskRow
from noetl.pipelines.tasks.runs import RunEnd
from noetl.pipelines.worker.attempts import OnTask
from noetl.pipelines.worker.in_process import InProcess, Operator, OperatorFailed, Produced
from noetl.pipelines.worker.on_spark import ByOperator, OnSpark
from noetl.pipelines.worker.runner import Run, Runner
from noetl.pipelines.worker.worker import TaskWorker
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import RUNTIMES
from noetl.runtime.wiring import Runtime
from noetl.spark.drivers.pool import Drivers
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers

WAIT_SECONDS = 100.0
"""Spark may have to be started meanwhile."""
HEARTBEAT_SECONDS = 0.3
EVERY_SECONDS = 0.1
"""How often outbox and reaper look."""

Row = dict[str, Any]
Given = Callable[[Work], list[Row] | Produced]
"""What a source gives for one attempt, with a state if it keeps one; it may raise OperatorFailed."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that was made, and what it read."""

    organization: str
    job: str
    partition_key: str
    attempt: int
    config: dict[str, Any]
    read: dict[str, list[Row]]


class Gate:
    """Holds attempts at a job back until the test opens it."""

    def __init__(self) -> None:
        self._arrivals: asyncio.Queue[TaskGrant] = asyncio.Queue()
        self._open = asyncio.Event()

    async def arrived(self) -> TaskGrant:
        """Wait for the next attempt that comes to the gate."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._arrivals.get()

    @property
    def arrivals(self) -> int:
        """How many came that the test has not seen yet."""
        return self._arrivals.qsize()

    def open(self) -> None:
        """Let all pass, from now on."""
        self._open.set()

    async def pass_through(self, grant: TaskGrant) -> None:
        """Come to the gate and wait until it is open."""
        self._arrivals.put_nowait(grant)
        await self._open.wait()


class Made:
    """The operator `made`: gives what the test says, or what a query makes of the inputs."""

    def __init__(self, organization: str, reader: TableReader) -> None:
        self._organization = organization
        self._reader = reader
        self.given: dict[str, Given] = {}
        self.gates: list[tuple[str, dict[str, Any], Gate]] = []
        self.asked: list[Asked] = []

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Do one attempt."""
        grant = work.grant
        tables = {one.alias: await self._reader.read(work, one) for one in grant.inputs}
        self.asked.append(
            Asked(
                organization=self._organization,
                job=grant.job,
                partition_key=grant.partition_key,
                attempt=grant.lease.attempt,
                config=grant.config,
                read={alias: sorted_rows(table) for alias, table in tables.items()},
            )
        )
        for job, config, gate in self.gates:
            if job == grant.job and config.items() <= grant.config.items():
                await gate.pass_through(grant)
        if "query" in grant.config:
            return Produced(tables={0: await asyncio.to_thread(_queried, grant.config["query"], tables)})
        give = self.given.get(grant.job)
        if give is None:
            raise OperatorFailed(f"the test gives nothing for job {grant.job}", retryable=False)
        made = give(work)
        return made if isinstance(made, Produced) else Produced(tables={0: pa.Table.from_pylist(made)})


def _queried(query: str, tables: dict[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for alias, table in tables.items():
            connection.register(alias, table)
        return connection.sql(query).to_arrow_table()


def sorted_rows(table: pa.Table) -> list[Row]:
    """Return the rows of a table in an order of their own."""
    return sorted(table.to_pylist(), key=lambda row: [(value is None, str(value)) for value in row.values()])


class TestedPipelines:
    """The pipelines of one organization, and what a test does with them and reads of them."""

    __test__ = False

    def __init__(self, pipelines: Pipelines, runtime: Runtime, scope: Scope, lake: LakeFiles, home: Path) -> None:
        self.pipelines = pipelines
        self.engine = pipelines.engine
        self.runtime = runtime
        self.scope = scope
        self.lake = lake
        self.home = home
        self.made = Made(scope.organization_id, TableReader(lake))

    def give(self, job: str, *rows: Row) -> None:
        """Let a source give these rows from now on."""
        self.made.given[job] = lambda work: list(rows)

    def gate(self, job: str, **config: Any) -> Gate:
        """Hold back the attempts at a job from now on, all or those of versions that are told this."""
        gate = Gate()
        self.made.gates.append((job, config, gate))
        return gate

    def asked(self, job: str) -> list[Asked]:
        """Return the attempts at a job that were made so far."""
        return [one for one in self.made.asked if one.job == job]

    def bundle(self, text: str, **beside: str) -> Bundle:
        """Return a DAG with files beside it, whose names have `__` where the file's name has a dot."""
        self.home.mkdir(parents=True, exist_ok=True)
        file = self.home / "dag.yaml"
        file.write_text(textwrap.dedent(text))
        for name, content in beside.items():
            (self.home / name.replace("__", ".")).write_text(textwrap.dedent(content))
        return read_bundle(file, operators={"made"})

    async def begin(self, text: str, **beside: str) -> Deployed:
        """Deploy a DAG and do not wait for its build."""
        return await self.pipelines.deploy(self.bundle(text, **beside), "tests")

    async def deploy(self, text: str, **beside: str) -> Deployed:
        """Deploy a DAG, build it and let it serve readers."""
        deployed = await self.begin(text, **beside)
        await self.built(deployed)
        await self.activate(deployed)
        return deployed

    async def built(self, deployed: Deployed) -> None:
        """Wait until a version is built; one whose build fails fails the test."""
        end = await self.finished(deployed.execution_id)
        assert end.status == "completed", end.error

    async def activate(self, deployed: Deployed) -> Cutover:
        """Let a version serve readers, and wait until what it has to catch up with is done."""
        return await self._caught_up(
            await self.pipelines.activate(deployed.plan.dag, deployed.dag_version_id, by="tests")
        )

    async def rollback(self, dag: str) -> Cutover:
        """Go back to the version before, and wait until what it has to catch up with is done."""
        return await self._caught_up(await self.pipelines.rollback(dag, None, by="tests"))

    async def _caught_up(self, cutover: Cutover) -> Cutover:
        if cutover.caught_up is not None:
            end = await self.finished(cutover.caught_up)
            assert end.status == "completed", end.error
        return cutover

    async def start(self, dag: str, job: str) -> int:
        """Emit a source and return its run."""
        return (await self.pipelines.emit(dag, (job,), by="tests"))[job]

    async def emit(self, dag: str, job: str) -> RunEnd:
        """Emit a source and wait until all that follows is done."""
        return await self.finished(await self.start(dag, job))

    async def finished(self, execution_id: int) -> RunEnd:
        """Wait for the end of a run; one that does not come to an end fails the test."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await self.pipelines.finished(execution_id)
        except TimeoutError:
            standing = [(one.job, one.partition_key, one.status, one.error) for one in await self.tasks()]
            raise AssertionError(f"run {execution_id} has not ended: {standing}") from None

    async def view(self, name: str) -> DatasetView:
        """Fix what a reader of a dataset sees now."""
        return await self.pipelines.datasets.view(self.scope, name)

    async def rows(self, dataset: str | DatasetView) -> list[Row]:
        """Return the rows that a reader sees, now or as a view has fixed it."""
        view = await self.view(dataset) if isinstance(dataset, str) else dataset
        if view.generation is None:
            raise NotFound(f"nothing serves {view.dataset.name}")
        datasets = self.pipelines.datasets
        schema = schema_of(await datasets.schema(self.scope, view.generation.dataset_version))
        manifests = await datasets.manifests(self.scope, view.partitions)
        return sorted_rows(await self.lake.read([entry for one in manifests for entry in one.files], schema))

    async def tasks(self, job: str | None = None) -> list[TaskRow]:
        """Return tasks in the order they were created."""
        return (await self.engine.by_hand.listed(self.scope, job=job, limit=1000))[::-1]

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """Ask the database what stands in the rows of the organization."""
        async with self.runtime.database.transaction(self.scope) as connection:
            return list(await connection.fetch(query, *values))

    @asynccontextmanager
    async def worker(self, runner: Runner, on_task: OnTask) -> AsyncIterator[TaskWorker]:
        """Give a worker for the time of the block."""
        worker = TaskWorker(
            "tests", self.scope, self.engine.tasks(self.scope), self.runtime.payloads,
            dict.fromkeys(RUNTIMES, runner), _NoSecrets(),
            heartbeat_seconds=HEARTBEAT_SECONDS, poll_seconds=1.0, on_task=on_task,
        )  # fmt: skip
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


class _NoSecrets:
    async def values(self, names: Any) -> dict[str, Any]:
        """Know none."""
        raise NotFound(f"the test has no secrets {names}")


class _NoSpark:
    """Where a test did not ask for Spark."""

    def open(self, grant: TaskGrant, bundle: bytes) -> AbstractAsyncContextManager[Run]:
        """Refuse."""
        return self._refuse(grant)

    def _refuse(self, grant: TaskGrant) -> NoReturn:
        raise OperatorFailed(f"job {grant.job} needs Spark: take the fixture spark_pipelines", retryable=False)


class SparkDrivers(Protocol):
    """What hands out Spark drivers, in this event loop or another, and where their lake is."""

    def for_(
        self, code_digest: str, bundle: bytes, organization: str, *, idle_seconds: float | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """Hold a driver."""
        ...


@asynccontextmanager
async def open_task_engine(runtime: Runtime) -> AsyncIterator[TaskEngine]:
    """Give an engine of tasks that looks often and tries again at once."""
    engine = TaskEngine(
        runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint, runtime.ids.mint_many,
        producer_of(runtime, "tests"), retry=Backoff(0.0, 0.0), redeliver=Backoff(0.05, 0.05),
        outbox_lease_seconds=1.0, every_seconds=EVERY_SECONDS,
    )  # fmt: skip
    try:
        yield engine
    finally:
        await engine.close()


def connected(engine: TaskEngine, runtime: Runtime, scope: Scope, lake: Lake, home: Path) -> TestedPipelines:
    """Return the pipelines of an organization on an engine; nothing works for it yet."""
    dags = Dags(runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint, producer_of(runtime, "tests"))
    datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
    if lake.directory is not None:
        lake.directory.mkdir(parents=True, exist_ok=True)
    return TestedPipelines(Pipelines(scope, dags, datasets, engine), runtime, scope, LakeFiles(lake), home)


@asynccontextmanager
async def working(
    tested: TestedPipelines,
    spark: SparkDrivers | None = None,
    *,
    on_task: OnTask = lambda grant, status, error: None,
) -> AsyncIterator[TestedPipelines]:
    """Let a worker do the tasks of these pipelines for the time of the block."""
    webhook = WebhookOperator(tested.scope, tested.runtime.payloads)
    here: dict[str, Operator] = {"made": tested.made, "webhook": webhook}
    on_spark = _NoSpark() if spark is None else OnSpark(tested.scope, cast("Drivers", spark))
    async with tested.worker(ByOperator(here, InProcess(here, TableWriter(tested.lake)), on_spark), on_task):
        yield tested


@pytest.fixture
async def task_engine(playbooks: Playbooks) -> AsyncIterator[TaskEngine]:
    """The engine of tasks of the test; replay is compared with the live rows after it is closed."""
    async with open_task_engine(playbooks.runtime) as engine:
        engine.start()
        yield engine


@pytest.fixture
async def pipelines(playbooks: Playbooks, task_engine: TaskEngine) -> AsyncIterator[TestedPipelines]:
    """Pipelines whose jobs run in this process."""
    home = playbooks.home
    tested = connected(task_engine, playbooks.runtime, playbooks.scope, Lake(str(home / "lake")), home / "dag")
    async with working(tested):
        yield tested


@pytest.fixture
async def other_pipelines(playbooks: Playbooks, task_engine: TaskEngine) -> AsyncIterator[TestedPipelines]:
    """Those of another organization in the same database, the same lake and the same process."""
    home, scope = playbooks.home, Scope(playbooks.scope.tenant_id, "another")
    tested = connected(task_engine, playbooks.runtime, scope, Lake(str(home / "lake")), home / "another")
    async with working(tested):
        yield tested


@pytest.fixture
async def spark_pipelines(
    playbooks: Playbooks, task_engine: TaskEngine, spark_drivers: SharedDrivers
) -> AsyncIterator[TestedPipelines]:
    """Pipelines with the Spark of the test process; its lake is shared, so that each test has a DAG of its own name."""
    lake = Lake(spark_drivers.options.lake_root)
    tested = connected(task_engine, playbooks.runtime, playbooks.scope, lake, playbooks.home / "dag")
    async with working(tested, spark_drivers):
        yield tested
