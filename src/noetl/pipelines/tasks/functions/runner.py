"""Hands tasks of the runtime `lambda` to functions outside: leased first, then sent by an `Invoker`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from noetl.errors import InputError, LeaseLost, NoetlError
from noetl.model.task import TaskGrant, TaskReport
from noetl.pipelines.tasks.port import Tasks


class Invoker(Protocol):
    """Sends grants to functions of one kind."""

    async def invoke(self, grant: TaskGrant) -> None:
        """Return once the function has taken the grant; raises when it has not, so that the attempt has failed."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Invokers:
    """Chooses by the job's config: `url` names a function behind HTTP, `function` one of AWS Lambda."""

    def __init__(self, by_field: Mapping[str, Invoker]) -> None:
        self._by_field = dict(by_field)

    async def invoke(self, grant: TaskGrant) -> None:
        """Send a grant to the function its job names."""
        for field, invoker in self._by_field.items():
            if field in grant.config:
                await invoker.invoke(grant)
                return
        known = " or ".join(f"config.{field}" for field in sorted(self._by_field)) or "nothing in this installation"
        raise InputError(f"job {grant.job} of {grant.dag} names no function to invoke", hint=f"give {known}")

    async def close(self) -> None:
        """Let go of all connections."""
        for invoker in self._by_field.values():
            await invoker.close()


_log = logging.getLogger(__name__)

RUNTIME: Final = "lambda"
_WAIT_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 1.0
_PART_OF_LEASE: Final = 0.5
"""An invocation may take this part of the lease; the function needs the rest to report at all."""


class FunctionRunner:
    """Claims for one organization; a function that cannot be reached fails the attempt, which is then tried again."""

    def __init__(self, worker: str, tasks: Tasks, invokers: Invokers, *, at_once: int = 16) -> None:
        self._worker = worker
        self._tasks = tasks
        self._invokers = invokers
        self._gate = asyncio.Semaphore(at_once)
        self._at_once = at_once
        self._invoking: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Claim and invoke until stopped."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="noetl-functions")

    async def stop(self) -> None:
        """Claim nothing more; wait for invocations under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._invoking:
            await asyncio.wait(self._invoking)

    async def run_once(self, wait_seconds: float = 0.0) -> int:
        """Claim what waits, invoke it, and return how many tasks that were."""
        grants = await self._tasks.claim(self._worker, (RUNTIME,), self._at_once, wait_seconds)
        for grant in grants:
            task = asyncio.get_running_loop().create_task(self._invoke(grant), name=f"noetl-invoke-{grant.job}")
            self._invoking.add(task)
            task.add_done_callback(self._invoking.discard)
        return len(grants)

    async def settled(self) -> None:
        """Wait for the invocations under way."""
        if self._invoking:
            await asyncio.wait(set(self._invoking))

    async def _run(self) -> None:
        while True:
            try:
                await self.run_once(_WAIT_SECONDS)
            except NoetlError as problem:
                _log.warning("no task for a function could be claimed: %s", problem.message)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _invoke(self, grant: TaskGrant) -> None:
        try:
            async with self._gate, asyncio.timeout(grant.lease.seconds * _PART_OF_LEASE):
                await self._invokers.invoke(grant)
        except Exception as problem:
            await self._failed(grant, problem)

    async def _failed(self, grant: TaskGrant, problem: Exception) -> None:
        known = isinstance(problem, NoetlError)
        message = problem.message if isinstance(problem, NoetlError) else f"{type(problem).__name__}: {problem}"
        kind = problem.code if isinstance(problem, NoetlError) else "defect"
        report = TaskReport(
            status="error",
            error=f"the function was not invoked: {message}",
            error_kind=kind,
            retryable=not known or problem.disposition != "terminal",  # type: ignore[attr-defined]
        )
        try:
            await self._tasks.fail(grant, report)
        except LeaseLost:
            return
        except NoetlError as unrecorded:
            _log.warning("a failed invocation could not be recorded: %s", unrecorded.message)
