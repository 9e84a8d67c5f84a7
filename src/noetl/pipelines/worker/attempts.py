"""Attempts at tasks of one job: leases kept, work run, and each result committed, failed or given up on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from noetl.engine.platform.payloads import PatientPayloads
from noetl.engine.platform.waits import Waits, answered, waiting_by
from noetl.errors import LeaseLost, NoetlError, NotFound
from noetl.faults import reach
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite, TaskGrant, TaskLease, TaskReport
from noetl.pipelines.catalog.dags.bundles import config_with_sql
from noetl.pipelines.datasets.manifests import Manifests
from noetl.pipelines.tasks.port import BaseMoved, Tasks
from noetl.pipelines.worker.runner import Run, Runner
from noetl.spark.drivers.protocol import Work, WorkResult

_log = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"


OnTask = Callable[[TaskGrant, str, str | None], None]
"""Told when an attempt begins and what became of it, with its error if it has one."""


class Secrets(Protocol):
    """Whoever knows the values behind names of secrets."""

    async def values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return secrets by name; an unknown one raises NotFound."""
        ...


class Attempts:
    """Runs claimed tasks; nothing it is told to stop is ever committed."""

    def __init__(
        self,
        scope: Scope,
        tasks: Tasks,
        payloads: PayloadStore,
        manifests: Manifests,
        runners: Mapping[str, Runner],
        secrets: Secrets,
        heartbeats: Heartbeats[TaskLease],
        on_task: OnTask,
    ) -> None:
        self._scope = scope
        self._tasks = tasks
        # What an attempt needs of the platform is waited for; what runs elsewhere for it reports its own errors.
        self._payloads = PatientPayloads(payloads)
        self._manifests = manifests
        self._runners = runners
        self._secrets = secrets
        self._heartbeats = heartbeats
        self._on_task = on_task
        self._batches: set[_Batch] = set()
        self._drained: float | None = None

    def drain(self, seconds: float) -> None:
        """Ask turns of sources that are kept running to end by themselves, and stop those that have not in so long."""
        self._drained = seconds
        for batch in self._batches:
            batch.drain(seconds)

    async def work(self, grants: Sequence[TaskGrant]) -> None:
        """Work on tasks of one job until each has ended."""
        open_ = {grant.lease.task_id: grant for grant in grants}
        batch = _Batch(self._tasks, open_, self._on_task)
        for grant in grants:
            self._heartbeats.hold(grant.lease, grant.lease.seconds, batch.loser(grant))
        self._batches.add(batch)
        if self._drained is not None:
            batch.drain(self._drained)
        try:
            with waiting_by(Waits(partial(_say_away, grants[0]), asyncio.sleep)):
                await self._run_or_fail(grants, batch)
        except asyncio.CancelledError:
            # The worker is told to go: handed back, its tasks need not wait for their leases to run out.
            await batch.fail_rest(TaskReport(status="canceled", error="its worker was stopped"))
            raise
        finally:
            self._batches.discard(batch)
            batch.close()
            for grant in grants:
                self._heartbeats.release(grant.lease)

    async def _run_or_fail(self, grants: Sequence[TaskGrant], batch: _Batch) -> None:
        try:
            await self._run(grants, batch)
        except NoetlError as problem:
            retryable = problem.disposition != "terminal"
            report = TaskReport(status="error", error=problem.message, error_kind=problem.code, retryable=retryable)
        except Exception as problem:
            _log.exception("a task of %s could not be run", grants[0].job)
            error = f"{type(problem).__name__}: {problem}"
            report = TaskReport(status="error", error=error, error_kind="defect")
        else:
            return
        await batch.fail_rest(report)

    async def _run(self, grants: Sequence[TaskGrant], batch: _Batch) -> None:
        first = grants[0]
        for grant in grants:
            self._on_task(grant, "Running", None)
        runner = self._runners[first.runtime]
        bundle = await self._payloads.fetch(self._scope, first.bundle)
        works = await self._works(grants, bundle)
        async with runner.open(first, bundle) as run:
            if run.application_id is not None:
                works = await self._recorded(run.application_id, works, batch)
            reach("task.after_started")
            batch.began(run, works)
            committing: list[asyncio.Task[None]] = []
            try:
                async for result in run.results(works):
                    work = batch.works.get(result.task_id)
                    if work is not None:
                        committing.append(asyncio.create_task(self._finish(run, work, result, batch)))
            finally:
                # What has its result is committed, whatever becomes of the others.
                await asyncio.gather(*committing)

    async def _recorded(self, application_id: str, works: Sequence[Work], batch: _Batch) -> list[Work]:
        """Record where the work will run, before its first action: whoever comes after a crash can stop it then."""
        answers = await asyncio.gather(
            *(answered("ledger", partial(self._tasks.started, work.grant, application_id, work.tag)) for work in works),
            return_exceptions=True,
        )
        kept = []
        for work, answer in zip(works, answers, strict=True):
            if answer is None:
                kept.append(work)
            elif isinstance(answer, LeaseLost | NotFound):
                batch.take(work.grant.lease.task_id)
            else:
                raise answer
        return kept

    async def _works(self, grants: Sequence[TaskGrant], bundle: bytes) -> list[Work]:
        refs = [ref for grant in grants for ref in references(grant)]
        manifests = await answered("payload store", lambda: self._manifests.get(refs))
        names = sorted({name for grant in grants for name in grant.secrets})
        secrets = await answered("ledger", lambda: self._secrets.values(names)) if names else {}
        config = config_with_sql(grants[0].config, bundle)
        return [
            Work(
                grant=msgspec.structs.replace(grant, config=config),
                manifests={ref.sha256: manifests[ref.sha256] for ref in references(grant)},
                secrets={name: secrets[name] for name in grant.secrets},
            )
            for grant in grants
        ]

    async def _finish(self, run: Run, work: Work, result: WorkResult, batch: _Batch) -> None:
        grant = work.grant
        if not batch.take(grant.lease.task_id):
            return
        logs = await self._stored(result.log)
        over = batch.overdue.get(grant.lease.task_id)
        if over is not None:
            result = WorkResult(
                task_id=result.task_id, attempt=result.attempt, status="error", error=over, error_kind="timeout"
            )
        error = result.error
        try:
            status = await self._record(run, work, result, logs)
        except (LeaseLost, NotFound) as problem:
            status, error = "Lost", problem.message
        except NoetlError as problem:
            # What was written is nobody's; another attempt writes its own.
            status, error = await self._failed(grant, problem, logs), problem.message
        if status == "Failed" and error is None:
            error = "; ".join(f"{one.label}: {one.detail}" for one in result.checks if not one.passed) or None
        self._on_task(grant, status, error)

    async def _failed(self, grant: TaskGrant, problem: NoetlError, logs: PayloadRef | None) -> str:
        report = TaskReport(
            status="error", error=problem.message, error_kind=problem.code, logs=logs,
            retryable=problem.disposition != "terminal",
        )  # fmt: skip
        try:
            return await answered("ledger", partial(self._tasks.fail, grant, report))
        except NoetlError as again:
            _log.warning("a failed attempt could not be recorded: %s", again.message)
            return "Lost"

    async def _record(self, run: Run, work: Work, result: WorkResult, logs: PayloadRef | None) -> str:
        if result.status != "ok":
            report = report_of(result, logs)
            await answered("ledger", partial(self._tasks.fail, work.grant, report))
            return "Canceled" if report.status == "canceled" else "Failed"
        while True:
            try:
                report = report_of(result, logs)
                return await answered("ledger", partial(self._tasks.complete, work.grant, report, work.manifests))
            except BaseMoved as moved:
                result, work = await self._unique(run, work, result, moved)
                if result.status != "ok":
                    return await self._record(run, work, result, logs)

    async def _unique(self, run: Run, work: Work, result: WorkResult, moved: BaseMoved) -> tuple[WorkResult, Work]:
        """Make the rows of partitions that moved on unique against what landed, and only against that."""
        writes = list(result.writes)
        for place, write in enumerate(writes):
            landed: Manifest | None = moved.landed.get((write.output, write.partition_key))
            if landed is None:
                continue
            again = await run.make_unique(work, write, landed)
            if again.status != "ok":
                return again, work
            (writes[place],) = again.writes
        return _with_writes(result, writes), _with_landed(work, moved)

    async def _stored(self, log: str) -> PayloadRef | None:
        if not log:
            return None
        try:
            return await self._payloads.store(self._scope, log.encode(), TEXT)
        except NoetlError as problem:
            # What was made counts for more than what was printed on the way.
            _log.warning("the log of a task could not be stored: %s", problem.message)
            return None


async def _say_away(first: TaskGrant, part: str, reason: str | None) -> None:
    if reason is None:
        _log.info("tasks of %s go on, for the %s answers again", first.job, part)
    else:
        _log.warning("tasks of %s wait for the %s: %s", first.job, part, reason)


class _Batch:
    """Which of the tasks claimed together are still open, and how to stop them."""

    def __init__(self, tasks: Tasks, grants: dict[str, TaskGrant], on_task: OnTask) -> None:
        self._tasks = tasks
        self._open = grants
        self._on_task = on_task
        self._run: Run | None = None
        self._stopped: set[str] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._interrupting: set[asyncio.Task[None]] = set()
        self._drained: float | None = None
        self.works: dict[str, Work] = {}
        self.overdue: dict[str, str] = {}

    def began(self, run: Run, works: Sequence[Work]) -> None:
        """Note where the work runs; what was lost before that is stopped now."""
        self._run = run
        self.works = {work.grant.lease.task_id: work for work in works}
        loop = asyncio.get_running_loop()
        for work in works:
            task_id, seconds = work.grant.lease.task_id, work.grant.timeout_seconds
            if task_id in self._stopped:
                self._interrupt(task_id)
            if seconds is not None:
                self._timers.append(loop.call_later(seconds, self._time_out, task_id, seconds))
        if self._drained is not None:
            self.drain(self._drained)

    def drain(self, seconds: float) -> None:
        """Ask turns to end by themselves, as soon as they have begun, and interrupt them after so long."""
        self._drained = seconds
        for task_id, work in self.works.items():
            if task_id in self._open and work.grant.source == "always_on" and self._run is not None:
                self._soon(self._run.ask_to_stop(work.tag))
                timer = asyncio.get_running_loop().call_later(seconds, self._interrupt, task_id)
                self._timers.append(timer)

    def loser(self, grant: TaskGrant) -> Callable[[], None]:
        """Return what stops this task when its lease is lost."""

        def lost() -> None:
            task_id = grant.lease.task_id
            self._open.pop(task_id, None)
            self._stopped.add(task_id)
            self._interrupt(task_id)

        return lost

    def take(self, task_id: str) -> bool:
        """Take a task that ended for recording; False if it is not ours any more."""
        return self._open.pop(task_id, None) is not None

    async def fail_rest(self, report: TaskReport) -> None:
        """Record that nothing came of the tasks that have no result."""
        grants, self._open = list(self._open.values()), {}
        # Within the work it is waited for who takes the report; a worker that was told to go tries it once.
        answers = await asyncio.gather(
            *(answered("ledger", partial(self._tasks.fail, grant, report)) for grant in grants), return_exceptions=True
        )
        for grant, answer in zip(grants, answers, strict=True):
            if not isinstance(answer, BaseException):
                self._on_task(grant, answer, report.error)
            elif not isinstance(answer, LeaseLost | NotFound):
                _log.warning("a failed attempt could not be recorded: %s", answer)

    def close(self) -> None:
        """Forget the timers."""
        for timer in self._timers:
            timer.cancel()

    def _time_out(self, task_id: str, seconds: float) -> None:
        if task_id in self._open:
            self.overdue[task_id] = f"it took longer than its {seconds:g} s"
            self._interrupt(task_id)

    def _interrupt(self, task_id: str) -> None:
        work = self.works.get(task_id)
        if self._run is not None and work is not None:
            self._soon(self._run.interrupt(work.tag))

    def _soon(self, told: Awaitable[None]) -> None:
        task = asyncio.ensure_future(told)
        self._interrupting.add(task)
        task.add_done_callback(self._interrupting.discard)


def references(grant: TaskGrant) -> list[PayloadRef]:
    """Return the payloads of all manifests a grant speaks of."""
    read = [part.manifest for one in grant.inputs for part in one.parts]
    return read + [part.manifest for target in grant.targets for part in target.parts]


def report_of(result: WorkResult, logs: PayloadRef | None) -> TaskReport:
    """Return what the ledger is told about a result."""
    return TaskReport(
        status="canceled" if result.status == "interrupted" else result.status,
        writes=result.writes,
        dropped=result.dropped,
        checks=result.checks,
        operator_state=result.operator_state,
        metrics=result.metrics,
        lineage=result.lineage,
        logs=logs,
        error=result.error,
        error_kind=result.error_kind,
        retryable=result.retryable,
    )


def _with_writes(result: WorkResult, writes: Sequence[PartitionWrite]) -> WorkResult:
    return msgspec.structs.replace(result, writes=tuple(writes))


def _with_landed(work: Work, moved: BaseMoved) -> Work:
    """Return the work on top of what landed: its partitions' manifests are the new base."""
    targets = []
    for target in work.grant.targets:
        landed = {key: part for (output, key), part in moved.parts.items() if output == target.output}
        kept = [part for part in target.parts if part.partition_key not in landed]
        targets.append(msgspec.structs.replace(target, parts=(*kept, *landed.values())))
    manifests = work.manifests | {
        moved.parts[place].manifest.sha256: manifest for place, manifest in moved.landed.items()
    }
    return msgspec.structs.replace(
        work, grant=msgspec.structs.replace(work.grant, targets=tuple(targets)), manifests=manifests
    )
