"""Takes back what its holders lost, pushes on what stands still and stops what goes on for nobody: leases that ran out,
children nobody told about, executions with nothing open, children of executions that failed or were cancelled. It looks at
all organizations and acts within each.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson

from noetl.dispatch.cascade import Cascade
from noetl.dispatch.children import Children
from noetl.dispatch.drafts import Drafting, command_stream
from noetl.dispatch.executions import Executions
from noetl.dispatch.frames import Frames
from noetl.dispatch.local import MAX_ATTEMPTS
from noetl.dispatch.orphans import ORPHANS, Orphans
from noetl.dispatch.repeating import Repeating
from noetl.dispatch.signal import Signal
from noetl.errors import Conflict, NotFound
from noetl.faults import reach
from noetl.leases import fences
from noetl.leases.kinds import COMMAND, FRAME
from noetl.leases.open_work import OpenWorkLeases
from noetl.ledger.database import Database
from noetl.ledger.port import Ledger
from noetl.ledger.transition import Append, Transition
from noetl.model.lease import Proof
from noetl.model.stream import Scope
from noetl.plan.trigger import Cancelled, CommandEnded, Doubt

_log = logging.getLogger(__name__)

_IDLE = """
SELECT h.tenant_id, h.organization_id, h.execution_id FROM noetl.execution_head AS h
WHERE h.requested_at < clock_timestamp() - make_interval(secs => $1) AND NOT EXISTS (
    SELECT FROM noetl.command AS c WHERE c.tenant_id = h.tenant_id AND c.organization_id = h.organization_id
    AND c.execution_id = h.execution_id) LIMIT 200
"""
_SUSPENDED = """
SELECT c.tenant_id, c.organization_id, c.execution_id, c.command_id, c.child_execution_id FROM noetl.command AS c
WHERE c.status = 'SUSPENDED' AND c.available_at < clock_timestamp() - make_interval(secs => $1) AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS h WHERE h.tenant_id = c.tenant_id AND h.organization_id = c.organization_id
    AND h.execution_id = c.child_execution_id) LIMIT 200
"""


class Reaper:
    """Runs in every server, and in a single process too; any number may run at once."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        executions: Executions,
        frames: Frames,
        children: Children,
        orphans: Orphans,
        cascade: Cascade,
        drafting: Drafting,
        signal: Signal,
        *,
        every_seconds: float = 1.0,
        idle_seconds: float = 10.0,
    ) -> None:
        self._database = database
        self._leases = OpenWorkLeases(database)
        self._ledger = ledger
        self._executions = executions
        self._frames = frames
        self._children = children
        self._orphans = orphans
        self._cascade = cascade
        self._drafting = drafting
        self._signal = signal
        self._every = every_seconds
        self._idle = idle_seconds
        self.frames_republished = 0
        """How many frames this process took back."""
        self.commands_republished = 0
        """How many commands this process took back."""
        self._repeating = Repeating("the reaper", self._look_once, every_seconds=every_seconds)

    def start(self) -> None:
        """Look again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._repeating.stop()

    async def _look_once(self) -> float:
        await self.sweep()
        return self._every

    async def sweep(self) -> int:
        """Look once and return how many things were taken back or pushed on."""
        done = 0
        for row in await self._leases.expired_frames():
            done += await self._tried(self._frame(row))
        for row in await self._leases.expired_commands():
            done += await self._tried(self._command(row))
        for row in await self._look(_SUSPENDED, self._idle):
            done += await self._tried(self._suspended(row))
        for row in await self._look(ORPHANS, self._idle, self._orphans.let_be):
            done += await self._tried(self._orphan(row))
        for row in await self._look(_IDLE, self._idle):
            done += await self._tried(self._executions.trigger(_scope(row), row["execution_id"], Doubt()))
        return done

    async def _look(self, query: str, *values: Any) -> list[Any]:
        async with self._database.transaction(None, "reaper") as connection:
            return list(await connection.fetch(query, *values))

    async def _tried(self, work: Any) -> int:
        try:
            return 0 if await work is False else 1
        except (Conflict, NotFound):
            return 0  # its holder came back in time, or somebody else was quicker

    async def _command(self, row: Any) -> None:
        scope, execution_id, attempt = _scope(row), row["execution_id"], row["attempt"]
        fence = fences.expired(COMMAND, Proof((execution_id, row["command_id"]), attempt, row["lease_token"]))
        if attempt >= MAX_ATTEMPTS:
            message = f"its worker was lost {attempt} times, the last one was {row['worker']}"
            report = CommandEnded(
                command_id=row["command_id"],
                attempt=attempt,
                status="error",
                error={"kind": "timeout", "message": message, "retryable": False, "code": "attempts_exhausted"},
            )
            tally = None
            if row["loop_id"] is not None:

                async def tally(_state: Any) -> Any:
                    return await self._frames.tally(
                        scope, execution_id, row["stage_id"], row["loop_id"], with_open=True
                    )

            await self._executions.trigger(scope, execution_id, report, fences=(fence,), tally=tally)
            return
        stream = command_stream(scope, execution_id, row["issued_event_id"])
        draft = self._drafting.one(
            scope, stream, execution_id, "command.abandoned", f"command/{row['command_id']}",
            command_id=row["command_id"], node_name=row["step_name"],
            meta={"attempt": attempt, "worker": row["worker"]},
        )  # fmt: skip
        lost, theirs = await self._frames.given_up(scope, execution_id, row["command_id"])
        reach("reap.before_record")
        await self._ledger.transact(Transition((Append(stream, [draft]), *lost), (fence, *theirs)))
        reach("reap.after_record")
        if row["stage_id"] is not None:
            self._frames.lost(row["stage_id"])
        self.commands_republished += 1
        self.frames_republished += len(lost)
        self._signal.touch()

    async def _frame(self, row: Any) -> None:
        scope = _scope(row)
        key = (row["execution_id"], row["frame_id"])
        fence = fences.expired(FRAME, Proof(key, row["attempt"], row["lease_token"]))
        reach("reap.before_record")
        await self._ledger.transact(Transition((self._frames.drafts.lost(scope, row),), (fence,)))
        reach("reap.after_record")
        self.frames_republished += 1
        self._frames.lost(row["stage_id"])
        self._signal.touch()

    async def _orphan(self, row: Any) -> bool:
        """Stop an execution that goes on for nobody, with all that is below it."""
        scope, parent_id = _scope(row), row["parent_execution_id"]
        why = await self._orphans.why(scope, row["execution_id"], parent_id)
        if why is None:
            return False
        wish = Cancelled(reason=why, by=f"execution/{parent_id}")
        return bool(await self._cascade.cancel(scope, row["execution_id"], wish))

    async def _suspended(self, row: Any) -> None:
        scope, parent_id, command_id = _scope(row), row["execution_id"], row["command_id"]
        try:
            child = await self._executions.state(scope, row["child_execution_id"])
        except NotFound:
            async with self._database.transaction(scope) as connection:
                event = await connection.fetchrow(
                    "SELECT meta, context FROM noetl.known_event WHERE execution_id = $1 AND command_id = $2"
                    " AND event_type = 'command.issued'",
                    parent_id,
                    command_id,
                )
            assert event is not None, "a row of a command stands only with its event"
            meta, context = orjson.loads(event["meta"]), orjson.loads(event["context"])
            await self._children.start_suspended(scope, parent_id, command_id, meta, context)
            return
        if child.ended:
            await self._children.resume(scope, parent_id, command_id, child)


def _scope(row: Any) -> Scope:
    return Scope(row["tenant_id"], row["organization_id"])
