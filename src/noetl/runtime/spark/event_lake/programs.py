"""Programs over the event lake, run in a Spark driver of the organization while `answers` in this process serves what they ask for."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from noetl.errors import NoetlError, Unavailable
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import Streamed
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.runtime.spark.event_lake.answers import LakeDesk, Told
from noetl.runtime.spark.ledger_access import ledger_reach
from noetl.runtime.wiring import Runtime
from noetl.spark.drivers.process import LOST, Answering
from noetl.spark.drivers.protocol import RunProgram, WorkResult


class ProgramFailed(NoetlError):
    """A program over the lake failed on Spark."""

    code = "program_failed"


class Driving(Protocol):
    """A driver as it is held."""

    async def do(self, errand: RunProgram, answer: Answering | None = None) -> WorkResult:
        """Do one errand and return its result."""
        ...

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let a program know that it should end."""
        ...


class SparkDrivers(Protocol):
    """What hands out Spark drivers."""

    def for_(self, code_digest: str, bundle: bytes, organization: str) -> AbstractAsyncContextManager[Driving]:
        """Hold a driver."""
        ...


class LakePrograms:
    """Runs programs for one organization."""

    def __init__(
        self, runtime: Runtime, scope: Scope, datasets: Datasets, streamed: Streamed, drivers: SparkDrivers
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._datasets = datasets
        self._streamed = streamed
        self._drivers = drivers

    async def run(
        self,
        program: str,
        arguments: dict[str, Any],
        jobs: dict[str, JobFacts],
        *,
        told: Told = lambda progress: None,
        stop: asyncio.Event | None = None,
    ) -> dict[str, Any]:
        """Run a program to its end and return what it came to; `stop` asks it to end soon.

        Raises Unavailable when its driver died and ProgramFailed when it failed by itself.
        """
        owner = f"{self._scope.tenant_id}/{self._scope.organization_id}"
        errand = RunProgram(
            id=f"lake-{self._runtime.ids.mint()}",
            attempt=1,
            organization=owner,
            reach=ledger_reach(self._runtime),
            program=program,
            arguments={"tenant": self._scope.tenant_id, "organization": self._scope.organization_id, **arguments},
        )
        desk = LakeDesk(self._scope, self._runtime.database, self._datasets, self._streamed, jobs, told)
        async with self._drivers.for_("", b"", owner) as driver:
            stopping = None if stop is None else asyncio.create_task(_stopped(stop, driver, errand.tag))
            try:
                result = await driver.do(errand, desk.answer)
            finally:
                if stopping is not None:
                    stopping.cancel()
                await desk.close()
        if result.status == "ok":
            return result.metrics
        if result.error_kind == LOST:
            raise Unavailable("the Spark driver ended while it worked on the lake", hint="run it again: it goes on")
        raise ProgramFailed(f"the lake could not be worked on: {result.error}", hint=_last_line(result.log))


async def _stopped(stop: asyncio.Event, driver: Driving, tag: str) -> None:
    await stop.wait()
    await driver.ask_to_stop(tag)


def _last_line(log: str) -> str | None:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1][:500] if lines else None
