"""Leases that come over HTTP: the proof a worker sends goes in, the grant it stands for comes out, or why it is lost.

A worker sends the proof of its lease alone. What the work is, is known here or read from the rows of open work, so that a
worker cannot make it up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
import orjson
from msgspec import Meta

from noetl.api.wire import Attempt, Body, Id, Name
from noetl.engine.dispatch.assignment import grant_of
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, LeaseRef
from noetl.errors import Conflict, LeaseLost, NotFound
from noetl.kernel.leases.kinds import COMMAND, FRAME
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.ids import parse_id
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import TaskLease

KEPT_GRANTS = 10_000
KEPT_ANSWERS = 500

_COMMAND = f"""
SELECT status, attempt, lease_token, {COMMAND.lasts()} AS lasts, lease_until, lease_seconds,
       issued_event_id, worker FROM noetl.command WHERE execution_id = $1 AND command_id = $2
"""  # noqa: S608
_FRAME = f"""
SELECT f.status, f.attempt, f.lease_token, {FRAME.lasts("f")} AS lasts, f.lease_until, f.lease_seconds,
       f.stage_id, f.loop_id, f.shard_id, f.frame_index, f.first_index, f.row_count, f.checkpoint, f.worker, f.input_ref, f.command_id,
       s.step_name, (s.frame_policy ->> 'max_attempts')::integer AS max_attempts
FROM noetl.frame AS f JOIN noetl.stage AS s USING (tenant_id, organization_id, execution_id, stage_id)
WHERE f.execution_id = $1 AND f.frame_id = $2
"""  # noqa: S608


class ActiveClaim(LeaseLost):
    """Another worker holds the command."""

    code = "active_claim"


class AlreadyTerminal(LeaseLost):
    """The command has ended."""

    code = "already_terminal"


class FrameOwnerMismatch(LeaseLost):
    """Another worker holds the frame, or it waits for one."""

    code = "frame_owner_mismatch"


class FrameAlreadyTerminal(LeaseLost):
    """The frame has ended."""

    code = "frame_already_terminal"


class StageNotOpen(Conflict):
    """The stage is closed, or there is none."""

    code = "stage_not_open"


class CommandLease(Body, frozen=True, kw_only=True):
    """The proof that a worker holds a command."""

    execution_id: Id
    command_id: Name
    attempt: Attempt
    token: UUID

    def ref(self) -> LeaseRef:
        """Return it as the engine knows it."""
        return LeaseRef("command", parse_id(self.execution_id), self.command_id, self.attempt, str(self.token))


class FrameLease(Body, frozen=True, kw_only=True):
    """The proof that a worker holds a frame."""

    execution_id: Id
    attempt: Attempt
    token: UUID

    def ref(self, frame_id: int) -> LeaseRef:
        """Return it as the engine knows it."""
        return LeaseRef("frame", parse_id(self.execution_id), str(frame_id), self.attempt, str(self.token))


class TaskProof(Body, frozen=True, kw_only=True):
    """The proof that a worker holds a task: the lease as it was granted."""

    task_id: UUID
    attempt: Attempt
    token: UUID
    seconds: Annotated[float, Meta(ge=0, le=1e9)]

    def lease(self) -> TaskLease:
        """Return it as the engine knows it."""
        return TaskLease(task_id=str(self.task_id), attempt=self.attempt, token=str(self.token), seconds=self.seconds)


class Leased:
    """Remembers the grants this server gave out; any other server can find them in the rows of open work."""

    def __init__(self, engine: Engine, database: Database) -> None:
        self._engine = engine
        self._database = database
        self._grants: OrderedDict[tuple[Scope, LeaseRef], CommandGrant | FrameGrant] = OrderedDict()
        self._answers: OrderedDict[Hashable, asyncio.Task[Any]] = OrderedDict()

    def keep(self, scope: Scope, grant: CommandGrant | FrameGrant) -> None:
        """Remember a grant."""
        self._grants[scope, grant.lease] = grant
        while len(self._grants) > KEPT_GRANTS:
            self._grants.popitem(last=False)

    def forget(self, scope: Scope, ref: LeaseRef) -> None:
        """Forget a grant whose work has ended."""
        self._grants.pop((scope, ref), None)

    async def command(self, scope: Scope, ref: LeaseRef) -> CommandGrant:
        """Return the grant of a command's lease."""
        found = self._grants.get((scope, ref))
        if isinstance(found, CommandGrant):
            return found
        row = await self._row(scope, _COMMAND, ref.execution_id, ref.id)
        if not _holds(row, ref):
            raise _command_lost(ref, row)
        lease = {
            "attempt": ref.attempt,
            "lease_token": ref.token,
            "lease_seconds": row["lease_seconds"],
            "worker": row["worker"],
        }
        try:
            state = await self._engine.executions.state(scope, ref.execution_id)
            grant = grant_of(state, ref.id, lease, row["issued_event_id"])
        except NotFound:
            raise _command_lost(ref, None) from None
        self.keep(scope, grant)
        return grant

    async def frame(self, scope: Scope, ref: LeaseRef) -> FrameGrant:
        """Return the grant of a frame's lease."""
        found = self._grants.get((scope, ref))
        if isinstance(found, FrameGrant):
            return found
        row = await self._row(scope, _FRAME, ref.execution_id, int(ref.id))
        if not _holds(row, ref):
            raise _frame_lost(ref, row)
        grant = FrameGrant(
            execution_id=ref.execution_id,
            step=row["step_name"],
            stage_id=row["stage_id"],
            loop_id=row["loop_id"],
            frame_id=int(ref.id),
            frame_index=row["frame_index"],
            first_index=row["first_index"],
            row_count=row["row_count"],
            attempt=ref.attempt,
            token=ref.token,
            lease_seconds=row["lease_seconds"],
            shard_id=row["shard_id"],
            rows_ref=None if row["input_ref"] is None else msgspec.json.decode(row["input_ref"], type=PayloadRef),
            checkpoint=None if row["checkpoint"] is None else orjson.loads(row["checkpoint"]),
            max_attempts=row["max_attempts"],
            worker=row["worker"] or "",
            command_id=row["command_id"],
        )
        self.keep(scope, grant)
        return grant

    async def lost(self, scope: Scope, ref: LeaseRef) -> LeaseLost:
        """Say why a lease is lost, as far as the rows of open work tell."""
        self.forget(scope, ref)
        if ref.table == "command":
            return _command_lost(ref, await self._row(scope, _COMMAND, ref.execution_id, ref.id))
        return _frame_lost(ref, await self._row(scope, _FRAME, ref.execution_id, int(ref.id)))

    async def lease_until(self, scope: Scope, ref: LeaseRef) -> datetime:
        """Return until when a lease lasts; `LeaseLost` if it does not."""
        query, name = (_COMMAND, ref.id) if ref.table == "command" else (_FRAME, int(ref.id))
        row = await self._row(scope, query, ref.execution_id, name)
        if not _holds(row, ref):
            raise await self.lost(scope, ref)
        until: datetime = row["lease_until"]
        return until

    async def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Do something once per key: who asks again, because the answer got lost, gets the first answer."""
        task = self._answers.get(key)
        if task is None:
            task = self._answers[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._failed(key, done))
            self._trim()
        return await asyncio.shield(task)

    def _failed(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._answers.pop(key, None)

    def _trim(self) -> None:
        for key in list(self._answers)[: max(0, len(self._answers) - KEPT_ANSWERS)]:
            if self._answers[key].done():
                del self._answers[key]

    async def _row(self, scope: Scope, query: str, *values: Any) -> Any:
        async with self._database.transaction(scope) as connection:
            return await connection.fetchrow(query, *values)


def _holds(row: Any, ref: LeaseRef) -> bool:
    return bool(
        row is not None and row["attempt"] == ref.attempt and str(row["lease_token"]) == ref.token and row["lasts"]
    )


def _command_lost(ref: LeaseRef, row: Any) -> LeaseLost:
    what = f"command {ref.id} of execution {ref.execution_id}"
    if row is None:
        return AlreadyTerminal(f"{what} has ended")
    if row["status"] == "CLAIMED" and str(row["lease_token"]) != ref.token:
        return ActiveClaim(f"{what} is held by {row['worker']}, at attempt {row['attempt']}")
    return LeaseLost(f"the lease on {what} has run out")


def _frame_lost(ref: LeaseRef, row: Any) -> LeaseLost:
    what = f"frame {ref.id} of execution {ref.execution_id}"
    if row is None:
        return FrameAlreadyTerminal(f"{what} has ended")
    if row["status"] == "LEASED" and str(row["lease_token"]) == ref.token:
        return LeaseLost(f"the lease on {what} has run out")
    return FrameOwnerMismatch(f"{what} is at attempt {row['attempt']}, and not this worker's")
