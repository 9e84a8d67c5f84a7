"""Runs of the driver: each in a thread and a Spark session of its own, each work with exactly one result.

What a work printed and what Spark said about it goes into its result, without the secrets it was given.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from noetl.errors import InputError, NoetlError
from noetl.spark.drivers.logs import SparkLog, masked
from noetl.spark.drivers.ongoing_work import ONGOING, Interrupted, OngoingWork, working
from noetl.spark.drivers.protocol import Done, FromDriver, MakeUnique, Run, Work, WorkResult
from noetl.spark.session.modes import Mode
from noetl.spark.session.options import SparkOptions


class Runs:
    """Starts runs and sends their results."""

    def __init__(
        self, mode: Mode, options: SparkOptions, spark_log: SparkLog, send: Callable[[FromDriver], None]
    ) -> None:
        self._mode = mode
        self._options = options
        self._spark_log = spark_log
        self._send = send

    def start(self, run: Run) -> None:
        """Run some works of one job in the background."""
        ongoing = {work.tag: ONGOING.begin(work.tag, run.organization) for work in run.works}
        threading.Thread(target=self._run, args=(run, ongoing), name=run.works[0].tag, daemon=True).start()

    def start_unique(self, message: MakeUnique) -> None:
        """Make files unique again in the background."""
        ONGOING.begin(message.work.tag, message.organization)
        threading.Thread(target=self._unique, args=(message,), name=message.work.tag, daemon=True).start()

    def _run(self, run: Run, ongoing: dict[str, OngoingWork]) -> None:
        """Run the works, and again those that failed only since they shared a Spark job with an interrupted one."""
        left = {(work.grant.lease.task_id, work.grant.lease.attempt): work for work in run.works}
        since = self._spark_log.position()
        while left:
            together = list(left.values())

            def disturbed(work: Work, together: list[Work] = together) -> bool:
                if ongoing[work.tag].is_interrupted:
                    return False
                return any(ongoing[other.tag].is_interrupted for other in together)

            def deliver(result: WorkResult, disturbed: Callable[[Work], bool] = disturbed) -> None:
                work = left.get((result.task_id, result.attempt))
                if work is None or (result.status != "ok" and disturbed(work)):
                    return
                del left[result.task_id, result.attempt]
                self._send(Done(self._finished(work, result, since)))

            problem = self._attempt(together, deliver)
            for work in list(left.values()):
                deliver(_failed(work, problem))

    def _attempt(self, works: list[Work], deliver: Callable[[WorkResult], None]) -> BaseException | None:
        try:
            operators: Any = import_module(self._options.operators)
            grant = works[0].grant
            session = self._mode.session(grant.spark, grant.job, works[0].tag)
            try:
                with working(session, [work.tag for work in works]):
                    operators.run_batch(session, works, self._lake(), deliver)
            finally:
                self._mode.release(session)
        except BaseException as error:
            return error
        return None

    def _unique(self, message: MakeUnique) -> None:
        work = message.work
        since = self._spark_log.position()
        try:
            operators: Any = import_module(self._options.operators)
            session = self._mode.session(work.grant.spark, work.grant.job, work.tag)
            try:
                with working(session, [work.tag]):
                    result = operators.make_unique(session, message, self._lake())
            finally:
                self._mode.release(session)
        except BaseException as error:
            result = _failed(work, error)
        self._send(Done(self._finished(work, result, since)))

    def _finished(self, work: Work, result: WorkResult, since: int) -> WorkResult:
        """Add the log and end the work: an interrupted one says so, whatever its code made of it."""
        printed, markers = ONGOING.log(work.tag)
        said = "\n".join(filter(None, (result.log, printed, self._spark_log.lines(markers, since))))
        secrets = list(work.secrets.values())
        error = result.error and masked(result.error, secrets)
        if result.status == "error" and ONGOING.is_interrupted(work.tag):
            result = msgspec.structs.replace(result, status="interrupted", error_kind="interrupted")
        ONGOING.end(work.tag)
        return msgspec.structs.replace(result, error=error, log=masked(said, secrets))

    def _lake(self) -> Any:
        from noetl.spark.lake.storage import Lake

        options = self._options
        return Lake(root=options.lake_root, options=options.lake_options, native=options.lake_native)


def _failed(work: Work, problem: BaseException | None) -> WorkResult:
    lease = work.grant.lease
    if isinstance(problem, Interrupted):
        return WorkResult(
            task_id=lease.task_id,
            attempt=lease.attempt,
            status="interrupted",
            error=f"{work.grant.dag}/{work.grant.job} was told to stop",
            error_kind="interrupted",
        )
    if problem is None:
        error, kind, retryable = "the operator ended without a result", "operator_error", False
    else:
        error, kind, retryable = _told(problem)
    trace = "".join(traceback.format_exception(problem)) if problem is not None else ""
    return WorkResult(
        task_id=lease.task_id,
        attempt=lease.attempt,
        status="error",
        error=f"{work.grant.dag}/{work.grant.job}: {error}",
        error_kind=kind,
        retryable=retryable,
        log=trace,
    )


def _told(problem: BaseException) -> tuple[str, str, bool]:
    """Put an error that the operators did not translate into words: message, kind, and whether to try again."""
    if isinstance(problem, NoetlError):
        return problem.message, problem.code, not isinstance(problem, InputError) and problem.disposition == "transient"
    first = (str(problem).strip() or "no message").splitlines()[0]
    missing = isinstance(problem, ImportError | SyntaxError)
    return f"{type(problem).__name__}: {first}", "code_error" if missing else "spark_error", not missing
