"""The worker of tasks: claims those of one job together, runs them, and commits what each came to under its own lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from noetl.errors import NoetlError
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskLease
from noetl.pipelines.datasets.manifests import Manifests
from noetl.pipelines.tasks.port import Tasks
from noetl.pipelines.worker.attempts import Attempts, OnTask, Secrets
from noetl.pipelines.worker.runner import Runner

_log = logging.getLogger(__name__)

BATCH = 256
"""Tasks of one job that are claimed together, at most."""
AGAIN_SECONDS = 1.0
DRAIN_SECONDS = 30.0
"""How long a turn of a source may take to end by itself once its worker is to stop."""


class TaskWorker:
    """Works on up to `slots` jobs at once, each with as many of its tasks as wait.

    Turns of sources that are kept running take no slot: they would leave none for what reads them.
    """

    def __init__(
        self,
        name: str,
        scope: Scope,
        tasks: Tasks,
        payloads: PayloadStore,
        runners: Mapping[str, Runner],
        secrets: Secrets,
        *,
        slots: int = 4,
        batch: int = BATCH,
        heartbeat_seconds: float = 5.0,
        poll_seconds: float = 10.0,
        drain_seconds: float = DRAIN_SECONDS,
        on_task: OnTask = lambda grant, status, error: None,
    ) -> None:
        self.name = name
        self._tasks = tasks
        self._runtimes = tuple(runners)
        self._slots = slots
        self._batch = batch
        self._poll = poll_seconds
        self._drain = drain_seconds
        clock = asyncio.get_running_loop().time
        self._heartbeats: Heartbeats[TaskLease] = Heartbeats(tasks, every_seconds=heartbeat_seconds, clock=clock)
        self._attempts = Attempts(
            scope, tasks, payloads, Manifests(scope, payloads), runners, secrets, self._heartbeats, on_task
        )
        self._running: set[asyncio.Task[None]] = set()
        self._turns: set[asyncio.Task[None]] = set()
        self._claiming: asyncio.Task[list[TaskGrant]] | None = None
        self._changed = asyncio.Event()
        self._stopping = False

    async def run(self) -> None:
        """Take and do work until stopped; what is under way when it is stopped is finished first."""
        self._heartbeats.start()
        try:
            while not self._stopping:
                if len(self._running) - len(self._turns) >= self._slots:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                grants = await self._claimed()
                if grants:
                    self._start(grants)
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            raise
        finally:
            while self._running:
                await asyncio.wait(self._running)
            await self._heartbeats.stop()

    async def stop(self) -> None:
        """Take nothing new and ask turns of sources to end; `run` returns once everything under way has ended."""
        self._stopping = True
        self._attempts.drain(self._drain)
        self._changed.set()
        if self._claiming is not None:
            self._claiming.cancel()

    async def _claimed(self) -> list[TaskGrant]:
        self._claiming = asyncio.get_running_loop().create_task(
            self._tasks.claim(self.name, self._runtimes, self._batch, self._poll)
        )
        try:
            return await self._claiming
        except asyncio.CancelledError:
            if not self._stopping:
                self._claiming.cancel()
                raise
            return []
        except Exception as problem:
            # Whatever it was, a worker that no longer asks would look healthy and do nothing.
            expected = isinstance(problem, NoetlError)
            _log.warning("no task could be asked for: %s", problem, exc_info=None if expected else problem)
            await asyncio.sleep(AGAIN_SECONDS)
            return []
        finally:
            self._claiming = None

    def _start(self, grants: Sequence[TaskGrant]) -> None:
        task = asyncio.get_running_loop().create_task(self._attempts.work(grants), name=f"noetl-task-{grants[0].job}")
        self._running.add(task)
        if grants[0].source == "always_on":
            self._turns.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._turns.discard(task)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("tasks ended in an error of the worker", exc_info=task.exception())
