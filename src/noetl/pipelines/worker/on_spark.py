"""Runs tasks on Spark, except those whose operator this process knows: a batch goes in, its run comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from noetl.model.dataset import Manifest
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite, TaskGrant
from noetl.pipelines.worker.runner import Run, Runner
from noetl.spark.drivers.pool import Drivers
from noetl.spark.drivers.process import Driver
from noetl.spark.drivers.protocol import Work, WorkResult


class OnSpark:
    """Gives each batch of tasks the driver of its code."""

    def __init__(self, scope: Scope, drivers: Drivers) -> None:
        self._scope = scope
        self._drivers = drivers

    @asynccontextmanager
    async def open(self, grant: TaskGrant, bundle: bytes) -> AsyncIterator[Run]:
        """Wait for the driver of this code, starting it if there is none."""
        owner = f"{self._scope.tenant_id}/{self._scope.organization_id}"
        idle = grant.idle_seconds
        async with self._drivers.for_(grant.code_digest, bundle, owner, idle_seconds=idle) as driver:
            yield _Run(driver)


class _Run:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def application_id(self) -> str | None:
        """The Spark application of the driver."""
        return self._driver.application_id

    async def results(self, works: Sequence[Work]) -> AsyncIterator[WorkResult]:
        """Run attempts in the driver; what earlier attempts left on a server of its own is stopped first."""
        for work in works:
            if work.grant.left is not None:
                await self._driver.interrupt_left(*work.grant.left)
        async for result in self._driver.run(works):
            yield result

    async def interrupt(self, job_tag: str) -> None:
        """Stop Spark's jobs of a tag; a driver that is gone has none."""
        await self._driver.interrupt(job_tag)

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let the function of a tag know that it should end."""
        await self._driver.ask_to_stop(job_tag)

    async def make_unique(self, work: Work, write: PartitionWrite, landed: Manifest) -> WorkResult:
        """Drop rows that landed meanwhile, in the driver."""
        return await self._driver.make_unique(work, write, landed)


class ByOperator:
    """Two runners as one."""

    def __init__(self, here: Collection[str], in_process: Runner, on_spark: Runner) -> None:
        self._here = frozenset(here)
        self._in_process = in_process
        self._on_spark = on_spark

    def open(self, grant: TaskGrant, bundle: bytes) -> AbstractAsyncContextManager[Run]:
        """Open the place this task belongs to."""
        runner = self._in_process if grant.operator in self._here else self._on_spark
        return runner.open(grant, bundle)
