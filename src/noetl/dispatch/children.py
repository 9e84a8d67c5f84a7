"""Child executions: started once per key, their end brought to whoever waits for it. A parent never polls or holds a slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import orjson
from blake3 import blake3

from noetl.catalog.playbooks import Catalog
from noetl.dispatch.executions import Executions
from noetl.dispatch.grants import Child, ChildEnd, CommandGrant
from noetl.dispatch.merging import merged
from noetl.dispatch.signal import Signal
from noetl.errors import KeyReused, LeaseLost, NoetlError, NotFound
from noetl.ledger.database import Database
from noetl.ledger.transition import Fence
from noetl.model.stream import Scope
from noetl.plan.fact import Fact
from noetl.plan.state import Result, State
from noetl.plan.trigger import CommandEnded, Start

_log = logging.getLogger(__name__)


class Children:
    """Starts child executions and tells their parents how they ended."""

    def __init__(self, database: Database, executions: Executions, catalog: Catalog, ended: Signal) -> None:
        self._database = database
        self._executions = executions
        self._catalog = catalog
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def start_soon(self, scope: Scope, parent: State, issued: Fact) -> None:
        """Start the child a suspended command waits for; if this process dies first, the reaper does it."""
        self.soon(
            self.start_suspended(scope, parent.execution_id, issued.command_id or "", issued.meta, issued.context)
        )

    def ended_soon(self, scope: Scope, child: State) -> None:
        """Tell a parent that its child has ended; if this process dies first, the reaper does it."""
        if child.parent_execution_id is not None and child.parent_command_id is not None:
            self.soon(self.resume(scope, child.parent_execution_id, child.parent_command_id, child))

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside, and log it if it fails."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start_suspended(
        self, scope: Scope, parent_id: int, command_id: str, meta: dict[str, Any], context: dict[str, Any]
    ) -> None:
        """Start the child of a suspended command, once; a child that cannot be started fails the command."""
        child = context["child"]
        child_id = int(meta["child_execution_id"])
        try:
            await self._start(
                scope, child_id, child["path"], child["version"], child["payload"], parent_id, command_id,
                f"child/{child_id}", Fence("command", parent_id, command_id, 0, None, "free"),
                detached=not child["waits"],
            )  # fmt: skip
        except LeaseLost:
            return  # its parent has ended, so it would run for nobody
        except NoetlError as problem:
            if problem.disposition == "transient":
                raise
            error = {"kind": "not_found", "message": problem.message, "retryable": False, "code": problem.code}
            await self._end(scope, parent_id, command_id, status="error", error=error)
            return
        if not child["waits"]:
            await self._end(scope, parent_id, command_id, status="ok", data={"execution_id": str(child_id)})

    async def resume(self, scope: Scope, parent_id: int, command_id: str, child: State) -> None:
        """Let a parent go on with how its child ended; one that does not wait is left alone."""
        row = await self._suspended(scope, parent_id, command_id)
        if row is None:
            return
        state = await self._executions.state(scope, parent_id)
        if state.ended:
            return
        if child.status == "COMPLETED":
            returned = await self._returned(scope, parent_id, command_id, child)
            # What stands outside the child's events stands outside the parent's, too.
            ref = returned.outside
            await self._end(scope, parent_id, command_id, status="ok", data=returned.data, ref=ref)
            return
        error = {
            "kind": "unknown",
            "message": f"child execution {child.execution_id} ended as {child.status}: {child.error}",
            "retryable": False,
            "code": f"child_{child.status.lower()}",
        }
        await self._end(scope, parent_id, command_id, status="error", error=error)

    async def _returned(self, scope: Scope, parent_id: int, command_id: str, child: State) -> Result:
        step = None
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(
                "SELECT context FROM noetl.known_event WHERE execution_id = $1 AND command_id = $2"
                " AND event_type = 'command.issued'",
                parent_id,
                command_id,
            )
        if row is not None and row["context"]:
            step = orjson.loads(row["context"]).get("child", {}).get("return_step")
        return _result_of(child, step)

    async def _suspended(self, scope: Scope, execution_id: int, command_id: str) -> Any:
        async with self._database.transaction(scope) as connection:
            return await connection.fetchrow(
                "SELECT child_execution_id FROM noetl.command WHERE execution_id = $1 AND command_id = $2"
                " AND status = 'SUSPENDED'",
                execution_id,
                command_id,
            )

    async def _end(self, scope: Scope, execution_id: int, command_id: str, **report: Any) -> None:
        fence = Fence("command", execution_id, command_id, 0, None, "free")
        ended = CommandEnded(command_id=command_id, attempt=0, **report)
        try:
            await self._executions.trigger(scope, execution_id, ended, fences=(fence,))
        except (LeaseLost, NotFound):
            return  # somebody else resumed it, or it was cancelled

    async def _start(
        self, scope: Scope, child_id: int, path: str, version: Any, payload: dict[str, Any], parent_id: int,
        command_id: str | None, key: str, asker: Fence, *, detached: bool = False,
    ) -> None:  # fmt: skip
        entry = await self._catalog.get(scope, path, None if version in (None, "latest") else int(version))
        plan = await self._catalog.plan(scope, entry.catalog_id)
        trigger = Start(
            path=entry.path,
            version=entry.version,
            catalog_id=entry.catalog_id,
            digest=entry.digest,
            workload=merged(plan.playbook.workload, payload),
            requested_by=f"execution/{parent_id}",
            key=key,
            parent_execution_id=parent_id,
            parent_command_id=command_id,
            detached=detached,
        )
        # Whoever asks for it must still be there when it starts; one that another process has started stays as it is.
        with suppress(KeyReused):
            await self._executions.trigger(scope, child_id, trigger, fences=(asker,))

    async def run(self, scope: Scope, grant: CommandGrant, child: Child) -> ChildEnd:
        """Start a child for a task or row and wait for its end; the key makes a second try find the first child."""
        child_id = child_id_of(grant.execution_id, child.key)
        await self._start(
            scope, child_id, child.path, child.version, child.payload, grant.execution_id, None, f"child/{child_id}",
            Fence("command", grant.execution_id, grant.command_id, grant.attempt, grant.token),
            detached=not child.waits,
        )  # fmt: skip
        if not child.waits:
            return ChildEnd(execution_id=child_id, status="COMPLETED", data={"execution_id": str(child_id)})
        while True:
            seen = self._ended.number
            state = await self._executions.state(scope, child_id)
            if state.ended:
                data = await self._executions.data(scope, _result_of(state, child.return_step))
                return ChildEnd(execution_id=child_id, status=state.status, data=data, error=state.error)
            await self._ended.wait(seen, 1.0)


def child_id_of(parent_id: int, key: str) -> int:
    """Return the id of the child a parent starts under a key, the same every time.

    It is some minutes older than the parent's, so that nobody takes it for the newest execution.
    """
    number = int.from_bytes(blake3(f"{parent_id}/{key}".encode()).digest(length=8), "little")
    return (((parent_id >> 22) - number % (1 << 20)) << 22) | ((number >> 20) % (1 << 22))


def _result_of(state: State, return_step: str | None) -> Result:
    """Return what an execution came to: its last step that said something, or the named step."""
    step = return_step if return_step in state.results else state.result_step
    return state.results.get(step or "", Result())


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        _log.exception("a child execution could not be handled; the reaper will try again")
