"""Runs slots that are held: a bounded number at a time of each kind, with heartbeats beside them, each to a recorded end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from noetl.errors import InputError, LeaseLost, NoetlError, OutsideUnavailable, Unavailable
from noetl.model.event import time_text
from noetl.services.schedule import planning
from noetl.services.schedule.drafts import Said
from noetl.services.schedule.handlers.port import ERROR_LIMIT, RESULT_LIMIT, Handler, Outcome, SlotRun
from noetl.services.schedule.held_slot import Held
from noetl.services.schedule.meter import Meter, RunResult
from noetl.services.schedule.slot_leases import SlotLeases
from noetl.services.schedule.spec import Kind

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25
"""How often one looks whose heartbeat is due."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""How long a slot pauses before it asks a platform that is away again."""
CANCEL_SECONDS: Final = 10.0
"""How long a handler may take to give up what it was told to stop."""


class RunningSlots:
    """The slots this process holds."""

    def __init__(
        self, leases: SlotLeases, handlers: Mapping[Kind, Handler], room: Mapping[Kind, int], runner: str, meter: Meter
    ) -> None:
        self._leases = leases
        self._handlers = handlers
        self._room = room
        self._runner = runner
        self._meter = meter
        self._queues: dict[Kind, asyncio.Queue[Held]] = {kind: asyncio.Queue() for kind in handlers}
        self._held: set[Held] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        """How many slots are held."""
        return len(self._held)

    def start(self) -> None:
        """Run whatever is added until stopped."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._work(self._queues[kind]), name=f"noetl-slots-{kind}")
            for kind in self._handlers
            for _ in range(self._room[kind])
        ]
        self._tasks.append(loop.create_task(self._beat(), name="noetl-slots-heartbeats"))

    def add(self, held: Held) -> None:
        """Run a slot as soon as there is room."""
        self._held.add(held)
        self._queues[held.kind].put_nowait(held)

    async def drain(self) -> None:
        """Finish what is held."""
        await asyncio.gather(*(queue.join() for queue in self._queues.values()))

    async def stop(self) -> None:
        """Stop at once; what is still held is taken back by others when its lease has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _work(self, queue: asyncio.Queue[Held]) -> None:
        while True:
            held = await queue.get()
            try:
                await self._run(held)
            except Exception:
                _log.exception("a slot of %s could not be ended", held.name)
            finally:
                self._held.discard(held)
                held.ended.set()
                queue.task_done()

    async def _run(self, held: Held) -> None:
        said: Said | None
        result: RunResult
        if not held.lost and time.monotonic() > held.lapses_at - held.spec.run_timeout_seconds:
            # It waited so long for room that a whole run would outlast the lease.
            await self._renew([held])
        began = time.monotonic()
        said, result = (None, "lease_lost") if held.lost else await self._tried(held)
        if said is not None and not held.lost:
            held.ending = True
            try:
                await self._leases.end(held, said)
            except LeaseLost:
                held.lost = True
        if held.lost:
            result = "lease_lost"
            _log.warning("the lease on the slot %s of %s was lost", time_text(held.plan_time), held.name)
        self._meter.slot_ended(held.kind, result, time.monotonic() - began)

    async def _tried(self, held: Held) -> tuple[Said | None, RunResult]:
        """Run the handler, and say what came of it."""
        run = SlotRun(
            scope=held.scope,
            schedule_id=held.schedule_id,
            name=held.name,
            target=held.target,
            plan_time=held.plan_time,
            attempt=held.attempt,
            key=held.key,
            runner=self._runner,
        )
        running = held.running = asyncio.ensure_future(_handled(self._handlers[held.kind], run))
        try:
            done, _ = await asyncio.wait([running], timeout=held.spec.run_timeout_seconds)
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running], timeout=CANCEL_SECONDS)
        if held.lost:
            return None, "lease_lost"
        return (
            self._told(held, running)
            if done
            else self._failed(held, "run_timeout", f"it took longer than {held.spec.run_timeout_seconds:g} s")
        )

    def _told(self, held: Held, running: asyncio.Future[Outcome]) -> tuple[Said, RunResult]:
        try:
            return _succeeded(held, running.result())
        except asyncio.CancelledError:
            return self._failed(held, "canceled", "its handler was cancelled")
        except NoetlError as problem:
            return self._failed(held, problem.code, problem.message)
        except Exception as problem:
            _log.exception("the handler of %s failed", held.name)
            return self._failed(held, "handler_error", f"{type(problem).__name__}: {problem}")

    def _failed(self, held: Held, code: str, error: str) -> tuple[Said, RunResult]:
        meta: dict[str, Any] = {"plan_time": time_text(held.plan_time), "attempt": held.attempt, "error_code": code}
        delay = planning.retry_delay(held.spec, held.attempt, held.max_attempts)
        told = error.replace("\x00", "")[:ERROR_LIMIT]
        if delay is None:
            return Said("slot.failed", meta, error=told), "failed"
        return Said("slot.attempt_failed", {**meta, "delay_seconds": delay}, error=told), "attempt_failed"

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            due: dict[Any, list[Held]] = {}
            for held in self._held:
                beats_at = min(held.renewed_at + held.spec.heartbeat_seconds, held.stops_at)
                if not (held.lost or held.ending) and now >= beats_at:
                    due.setdefault(held.scope, []).append(held)
            for group in due.values():
                await self._renew(group)

    async def _renew(self, group: list[Held]) -> None:
        kind = group[0].kind
        try:
            lost = await self._leases.renew(group)
        except NoetlError as problem:
            _log.warning("leases on slots could not be renewed: %s", problem.message)
            self._meter.slots_beaten(kind, "unreachable", len(group))
            lost = [held for held in group if time.monotonic() >= held.stops_at]
        else:
            self._meter.slots_beaten(kind, "renewed", len(group) - len(lost))
        for held in lost:
            self._meter.slots_beaten(held.kind, "lost")
            held.lose()


async def _handled(handler: Handler, run: SlotRun) -> Outcome:
    """Run a handler; while the platform is away it is run again, under its key, until it may take no longer."""
    pause = FIRST_PAUSE
    while True:
        try:
            return await handler(run)
        except OutsideUnavailable:
            raise
        except Unavailable as away:
            _log.warning("the slot %s of %s waits: %s", time_text(run.plan_time), run.name, away.message)
        # Spread, so that those who lost it together do not come back together.
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        pause = min(LONGEST_PAUSE, pause * 2)


def _succeeded(held: Held, outcome: Outcome) -> tuple[Said, RunResult]:
    with suppress(TypeError):
        if len(orjson.dumps(outcome.result)) <= RESULT_LIMIT:
            meta: dict[str, Any] = {"plan_time": time_text(held.plan_time), "attempt": held.attempt}
            meta["run_id"] = None if outcome.run_id is None else str(outcome.run_id)
            meta["rows_affected"], meta["skipped_reason"] = outcome.rows_affected, outcome.skipped_reason
            told = {name: value for name, value in meta.items() if value is not None}
            return Said(
                "slot.succeeded", told, result=outcome.result
            ), "skipped" if outcome.skipped_reason else "succeeded"
    raise InputError(f"the result of {held.name} is no JSON of at most {RESULT_LIMIT} bytes")
