"""Runs tasks whose operator needs no Spark in this process: each returns tables, which become partitions here."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from noetl.errors import NoetlError
from noetl.model.dataset import Manifest
from noetl.model.lineage import Lineage, opaque
from noetl.model.task import PartitionWrite, TaskGrant
from noetl.pipelines.tables.partitions import TableWriter
from noetl.pipelines.worker.runner import Run
from noetl.spark.drivers.protocol import Work, WorkResult


class Produced(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator made: a table per output, and what it wants to remember."""

    tables: dict[int, pa.Table] = {}
    state: dict[str, Any] | None = None
    lineage: dict[int, Lineage] = {}
    """Where the columns of an output come from, as far as the operator knows; what it does not tell is opaque."""
    metrics: dict[str, Any] = {}
    log: str = ""


class Operator(Protocol):
    """One kind of work."""

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Do one attempt; being cancelled means to stop at once."""
        ...


class OperatorFailed(NoetlError):
    """An operator could not do its work."""

    code = "operator_failed"

    def __init__(self, message: str, *, retryable: bool = True, log: str = "") -> None:
        super().__init__(message)
        self.retryable = retryable
        self.log = log


class InProcess:
    """Runs any number of attempts at once."""

    def __init__(self, operators: Mapping[str, Operator], writer: TableWriter) -> None:
        self._operators = operators
        self._writer = writer

    @asynccontextmanager
    async def open(self, grant: TaskGrant, bundle: bytes) -> AsyncIterator[Run]:
        """Be ready, which this process always is; what is still under way at the end is stopped."""
        operator = self._operators.get(grant.operator)
        if operator is None:
            raise OperatorFailed(
                f"job {grant.job}: the operator {grant.operator!r} does not run in this process", retryable=False
            )
        run = _Run(operator, bundle, self._writer)
        try:
            yield run
        finally:
            run.close()


class _Run:
    application_id: str | None = None

    def __init__(self, operator: Operator, bundle: bytes, writer: TableWriter) -> None:
        self._operator = operator
        self._bundle = bundle
        self._writer = writer
        self._running: dict[str, asyncio.Task[WorkResult]] = {}
        self._asked: dict[str, asyncio.Event] = {}

    async def results(self, works: Sequence[Work]) -> AsyncIterator[WorkResult]:
        """Run attempts side by side."""
        self._asked = {work.tag: asyncio.Event() for work in works}
        self._running = {work.tag: asyncio.create_task(self._one(work)) for work in works}
        for ended in asyncio.as_completed(list(self._running.values())):
            yield await ended

    async def interrupt(self, job_tag: str) -> None:
        """Cancel one attempt."""
        running = self._running.get(job_tag)
        if running is not None:
            running.cancel()

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let one attempt know that it should end."""
        if job_tag in self._asked:
            self._asked[job_tag].set()

    async def make_unique(self, work: Work, write: PartitionWrite, landed: Manifest) -> WorkResult:
        """Drop rows that landed meanwhile."""
        lease = work.grant.lease
        again = await self._writer.unique_again(work, write, landed)
        return WorkResult(task_id=lease.task_id, attempt=lease.attempt, status="ok", writes=(again,))

    def close(self) -> None:
        """Cancel everything."""
        for task in self._running.values():
            task.cancel()

    async def _one(self, work: Work) -> WorkResult:
        lease = work.grant.lease

        def failed(error: str, kind: str, *, retryable: bool = True, log: str = "") -> WorkResult:
            return WorkResult(
                task_id=lease.task_id, attempt=lease.attempt, status="error", error=error, error_kind=kind,
                retryable=retryable, log=log,
            )  # fmt: skip

        may_be_asked(self._asked[work.tag])
        try:
            produced = await self._operator.operate(work, self._bundle)
            written = await self._writer.write(work, produced.tables)
        except asyncio.CancelledError:
            return WorkResult(
                task_id=lease.task_id, attempt=lease.attempt, status="interrupted", error="it was stopped"
            )
        except OperatorFailed as problem:
            return failed(problem.message, problem.code, retryable=problem.retryable, log=problem.log)
        except NoetlError as problem:
            return failed(problem.message, problem.code, retryable=problem.disposition != "terminal")
        except Exception as problem:
            return failed(f"{type(problem).__name__}: {problem}", "defect", log=traceback.format_exc())
        return WorkResult(
            task_id=lease.task_id, attempt=lease.attempt, status="ok", writes=written.writes,
            dropped=written.dropped, checks=written.checks, operator_state=produced.state,
            metrics=produced.metrics, lineage=_lineage(work, produced), log=produced.log,
        )  # fmt: skip


def _lineage(work: Work, produced: Produced) -> dict[int, Lineage]:
    aliases = [one.alias for one in work.grant.inputs]
    why = f"the operator {work.grant.operator} does not tell"
    return {
        output: produced.lineage.get(output) or opaque("opaque", table.column_names, aliases, why)
        for output, table in produced.tables.items()
    }


_asked: ContextVar[asyncio.Event] = ContextVar("noetl_stop_asked")


def stop_asked() -> asyncio.Event:
    """Return what is set when the attempt under way should end soon; an operator that does not look is stopped later."""
    return _asked.get()


def may_be_asked(asked: asyncio.Event) -> None:
    """Let what the running asyncio task does from now on hear through this event."""
    _asked.set(asked)
