"""What the worker of tasks asks of those who run them: a Spark driver, or this process itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from noetl.model.dataset import Manifest
from noetl.model.task import PartitionWrite, TaskGrant
from noetl.spark.drivers.protocol import Work, WorkResult


class Run(Protocol):
    """A place that is ready to run tasks of one job."""

    @property
    def application_id(self) -> str | None:
        """The Spark application the work will run in, recorded before it starts; None where there is none."""
        ...

    def results(self, works: Sequence[Work]) -> AsyncIterator[WorkResult]:
        """Run attempts and give what each came to, as soon as it has ended. Every work gets exactly one result."""
        ...

    async def interrupt(self, job_tag: str) -> None:
        """Stop what runs under a tag, at once; its result then says so."""
        ...

    async def ask_to_stop(self, job_tag: str) -> None:
        """Ask what runs under a tag to end soon by itself; its result then counts like any other."""
        ...

    async def make_unique(self, work: Work, write: PartitionWrite, landed: Manifest) -> WorkResult:
        """Drop rows whose key landed meanwhile by another commit."""
        ...


class Runner(Protocol):
    """Runs the tasks of some runtimes."""

    def open(self, grant: TaskGrant, bundle: bytes) -> AbstractAsyncContextManager[Run]:
        """Give a place that is ready for tasks like this one, waiting for a session if it has to be started."""
        ...
