"""Turns of sources that are kept running: read from their tasks, begun, taken up again, paused and let go on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from noetl.errors import Conflict, InputError, NotFound
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.language.dag.times import seconds_of
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.life_cycles import (
    AFTER,
    EVERY_SECONDS,
    LOOKED_AT,
    PAUSED,
    PREFIX,
    Begin,
    Resume,
    Turn,
    Wait,
    next_step,
    turn_key,
    turn_number,
)
from noetl.pipelines.tasks.actions import UNUSED
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.jobs import JobFacts

_TRIES: Final = 20
_STOPPING_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_TURNS: Final = f"""
SELECT t.task_id::text AS task_id, t.dedupe_key, t.status, t.available_at IS NOT NULL AS is_open, t.created_at,
       t.ended_at, t.error, t.execution_id, t.cancel_requested
FROM noetl.task AS t WHERE t.generation = $1 AND t.dedupe_key >= '{PREFIX}' AND t.dedupe_key < '{AFTER}'
ORDER BY t.dedupe_key DESC LIMIT {LOOKED_AT}
"""  # noqa: S608 - constants
# Builds and emissions sort before turns, and there are few of them.
_BESIDE: Final = f"""
SELECT clock_timestamp() AS now, EXISTS (
    SELECT FROM noetl.task AS t WHERE t.generation = $1 AND t.dedupe_key < '{PREFIX}' AND t.available_at IS NOT NULL
) AS busy
"""  # noqa: S608 - constants
_ASKED: Final = """
SELECT meta ->> 'reason' FROM noetl.known_event WHERE stream_id = $1 AND execution_id = $2
  AND event_type = 'task.cancel_requested' ORDER BY stream_version DESC LIMIT 1
"""
_JOB: Final = """
SELECT j.job_id::text AS job_id FROM noetl.dag_current_version AS c
JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id) WHERE c.dag = $1 AND j.name = $2
"""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The last turns of a source, the newest first."""

    turns: tuple[Turn, ...]
    now: datetime
    """The database's time."""
    busy: bool
    """Whether another task of it is open: a build, or one that was started by hand."""


class Turns:
    """The turns of all organizations of one database."""

    def __init__(self, database: Database, engine: TaskEngine) -> None:
        self._database = database
        self._engine = engine

    async def keep(self, scope: Scope, facts: JobFacts) -> float | None:
        """Do what is to be done for a source now; return after how long it is to be looked at again at the latest."""
        seen = await self._seen(scope, facts.generation)
        step = Wait() if seen.busy else next_step(seen.turns, now=seen.now, every_seconds=every_seconds(facts))
        match step:
            case Begin(number):
                await self._begin(scope, facts, number)
            case Resume(task_id):
                with suppress(Conflict):  # somebody else did so a moment ago
                    await self._engine.by_hand.retry(scope, task_id, by="keeper")
            case Wait(seconds):
                return seconds
        return None

    async def pause(self, scope: Scope, dag: str, job: str, *, by: str) -> str:
        """Ask the turn under way to stop and let none follow; return the task that is cancelled."""
        facts = await self._facts(scope, dag, job)
        for _ in range(_TRIES):
            newest = await self._newest(scope, facts)
            if newest is not None and newest.paused:
                return newest.task_id
            if newest is None or not newest.is_open:
                # Between two turns there is none to cancel: the next is begun for it.
                await self._begin(scope, facts, 1 if newest is None else newest.number + 1)
                continue
            with suppress(Conflict):  # it ended a moment ago
                await self._engine.by_hand.cancel(scope, newest.task_id, reason=PAUSED, by=by)
                return newest.task_id
        raise Conflict(f"source {dag}.{job} keeps changing; try again")

    async def resume(self, scope: Scope, dag: str, job: str, *, by: str) -> str:
        """Let the turn go on at which a source was paused; return its task."""
        facts = await self._facts(scope, dag, job)
        newest = await self._rested(scope, facts)
        if newest is None or not newest.paused:
            raise Conflict(f"source {dag}.{job} is not paused", hint=f"`noetl dag status {dag}` shows how it is")
        if newest.status != "Canceled":
            await self._begin(scope, facts, newest.number + 1)
            return identity.task_id(facts.generation, turn_key(newest.number + 1))
        await self._engine.by_hand.retry(scope, newest.task_id, by=by)
        return newest.task_id

    async def _begin(self, scope: Scope, facts: JobFacts, number: int) -> None:
        await self._engine.runs.start_once(scope, facts, turn_key(number), requested_by="keeper")

    async def _newest(self, scope: Scope, facts: JobFacts) -> Turn | None:
        seen = await self._seen(scope, facts.generation)
        return seen.turns[0] if seen.turns else None

    async def _rested(self, scope: Scope, facts: JobFacts) -> Turn | None:
        """Return the newest turn; one that was asked to stop gets a moment to do so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOPPING_SECONDS):
                while True:
                    newest = await self._newest(scope, facts)
                    if newest is None or not (newest.is_open and newest.ends):
                        return newest
                    await asyncio.sleep(_LOOK_SECONDS)
        raise Conflict(f"the turn of {facts.name} was asked to stop and still runs; try again when it has ended")

    async def _seen(self, scope: Scope, generation: str) -> Seen:
        async with self._database.transaction(scope) as connection:
            return await read_turns(connection, scope, generation)

    async def _facts(self, scope: Scope, dag: str, job: str) -> JobFacts:
        async with self._database.transaction(scope) as connection:
            job_id = await connection.fetchval(_JOB, dag, job)
        if job_id is None:
            raise NotFound(f"the current version of DAG {dag} has no job {job}", hint=f"see `noetl dag status {dag}`")
        facts = await self._engine.jobs.get(scope, job_id)
        if facts.definition.source is None or facts.definition.source.kind != "always_on":
            raise InputError(f"job {job} of {dag} is not kept running", hint="only always_on sources have turns")
        return facts


def every_seconds(facts: JobFacts) -> float:
    """Return how far the turns of a source begin apart."""
    source = facts.definition.source
    return EVERY_SECONDS if source is None or source.every is None else seconds_of(source.every)


async def read_turns(connection: Connection, scope: Scope, generation: str) -> Seen:
    """Return the last turns of a generation."""
    beside = await connection.fetchrow(_BESIDE, generation)
    assert beside is not None
    rows = await connection.fetch(_TURNS, generation)
    turns = [_turn(row) for row in rows]
    if turns and turns[0].status == "Completed" and rows[0]["cancel_requested"]:
        # It was done before it heard that it should stop; what was asked for holds all the same.
        stream = identity.task_stream(scope, turns[0].task_id)
        reason = await connection.fetchval(_ASKED, stream.stream_id, rows[0]["execution_id"])
        turns[0] = msgspec.structs.replace(turns[0], paused=reason == PAUSED)
    return Seen(turns=tuple(turns), now=beside["now"], busy=beside["busy"])


def _turn(row: Any) -> Turn:
    cancelled = row["status"] == "Canceled"
    return Turn(
        number=turn_number(row["dedupe_key"]) or 0,
        task_id=row["task_id"],
        status=row["status"],
        is_open=row["is_open"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        paused=cancelled and row["error"] == PAUSED,
        set_aside=cancelled and row["error"] == UNUSED,
        ends=row["cancel_requested"],
    )
