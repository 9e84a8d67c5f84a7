"""Child executions: started once per key, their end brought to whoever waits for it. A parent never polls or holds a slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from blake3 import blake3

from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.dispatch.cascade import Orphans
from noetl.engine.dispatch.executions import Executions
from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.grants import Child, ChildEnd, CommandGrant
from noetl.engine.dispatch.open_work.port import OpenWork
from noetl.engine.dispatch.polling import Signal
from noetl.engine.plan.execution_end import failure_of, result_of
from noetl.engine.plan.fact import Fact
from noetl.engine.plan.limits import depth_below
from noetl.engine.plan.state import Result, State
from noetl.engine.plan.trigger import CommandEnded, Start
from noetl.errors import ChildTooDeep, Conflict, KeyReused, LeaseLost, NoetlError, NotFound, TemplateFailed
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import COMMAND
from noetl.kernel.ledger.transition import Fence
from noetl.model.stream import Scope

_log = logging.getLogger(__name__)

CLOSING_SECONDS = 5.0
"""How long what is under way may take when a process ends; what is not done then, the reaper of another does."""


class Children:
    """Starts child executions and tells their parents how they ended."""

    def __init__(
        self,
        work: OpenWork,
        facts: Facts,
        executions: Executions,
        catalog: Catalog,
        orphans: Orphans,
        ended: Signal,
    ) -> None:
        self._work = work
        self._facts = facts
        self._executions = executions
        self._catalog = catalog
        self._orphans = orphans
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def settled(self) -> None:
        """Wait until nothing is under way, whatever that starts in turn."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Start no more children, and wait a while for what is under way."""
        self._closing = True
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.settled()
        except TimeoutError:
            _log.warning("children of executions were not handled to the end; a reaper will see to them")

    def start_soon(self, scope: Scope, parent: State, issued: Fact) -> None:
        """Start the child a suspended command waits for; if this process dies or ends first, the reaper does it."""
        if self._closing:
            return
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
            # How deep it may be was decided when its command was issued.
            parent = await self._executions.state(scope, parent_id, look=False)
            await self._start(
                scope, child_id, child["path"], child["version"], child["payload"], parent, command_id,
                fences.free(COMMAND, (parent_id, command_id), 0), detached=not child["waits"],
            )  # fmt: skip
        except LeaseLost:
            return  # its parent, or one above, has ended, so it would run for nobody
        except NoetlError as problem:
            if problem.disposition == "transient":
                raise
            kind = "transform" if isinstance(problem, TemplateFailed) else "not_found"
            error = {"kind": kind, "message": problem.message, "retryable": False, "code": problem.code}
            await self._end(scope, parent_id, command_id, status="error", error=error)
            return
        if not child["waits"]:
            await self._end(scope, parent_id, command_id, status="ok", data={"execution_id": str(child_id)})

    async def resume(self, scope: Scope, parent_id: int, command_id: str, child: State) -> None:
        """Let a parent go on with how its child ended; one that does not wait is left alone."""
        if not await self._work.is_suspended(scope, parent_id, command_id):
            return
        state = await self._executions.state(scope, parent_id)
        if state.ended:
            return
        if child.status == "COMPLETED":
            returned = await self._returned(scope, parent_id, command_id, child)
            # What stands outside the child's events stands outside the parent's, too.
            ref = returned.outside
            own = {"execution_id": str(child.execution_id)}
            await self._end(scope, parent_id, command_id, status="ok", data=returned.data, ref=ref, selected=own)
            return
        error = {
            "kind": "unknown",
            "message": failure_of(child.execution_id, child.status, child.error),
            "retryable": False,
            "code": f"child_{child.status.lower()}",
        }
        await self._end(scope, parent_id, command_id, status="error", error=error)

    async def _returned(self, scope: Scope, parent_id: int, command_id: str, child: State) -> Result:
        issued = await self._facts.issued(scope, parent_id, command_id)
        context = {} if issued is None else (await self._executions.whole(scope, issued)).context
        step = context.get("child", {}).get("return_step")
        return result_of(child, step)

    async def _end(self, scope: Scope, execution_id: int, command_id: str, **report: Any) -> None:
        fence = fences.free(COMMAND, (execution_id, command_id), 0)
        ended = CommandEnded(command_id=command_id, attempt=0, **report)
        try:
            await self._executions.trigger(scope, execution_id, ended, fences=(fence,))
        except (LeaseLost, NotFound):
            return  # somebody else resumed it, or it was cancelled

    async def _start(
        self, scope: Scope, child_id: int, path: str, version: Any, payload: dict[str, Any], parent: State,
        command_id: str | None, asker: Fence, *, detached: bool = False,
    ) -> None:  # fmt: skip
        if parent.parent_execution_id is not None:
            # Those further up are not locked for it: whoever ends one of them meanwhile comes down to it.
            why = await self._orphans.why_below(scope, parent.execution_id)
            if why is not None:
                raise LeaseLost(f"execution {parent.execution_id} starts nothing any more: {why}")
        entry = await self._catalog.get(scope, path, None if version in (None, "latest") else int(version))
        plan = await self._catalog.plan(scope, entry.catalog_id)
        # The id of a child is older than the child.
        at = datetime.now(UTC)
        workload = await self._catalog.plans.evaluating.run(
            scope,
            lambda: plan.workload.in_force(payload, execution_id=child_id, catalog_id=entry.catalog_id, at=at),
        )
        trigger = Start(
            path=entry.path,
            version=entry.version,
            catalog_id=entry.catalog_id,
            digest=entry.digest,
            workload=workload,
            requested_by=f"execution/{parent.execution_id}",
            key=f"child/{child_id}",
            parent_execution_id=parent.execution_id,
            parent_command_id=command_id,
            depth=parent.depth + 1,
            detached=detached,
        )
        # Whoever asks for it must still be there when it starts; one that another process has started stays as it is.
        with suppress(KeyReused):
            await self._executions.trigger(scope, child_id, trigger, fences=(asker,))

    async def depth_below(self, scope: Scope, parent_id: int, child_id: int, path: str) -> int:
        """Return the depth of a child that is asked for from outside; one that would be too deep or run for nobody is refused.

        Not only playbooks start playbooks: a parent that is no run of one is the first of its family.
        """
        try:
            parent = await self._executions.state(scope, parent_id)
        except NotFound:
            return 1
        await self._refuse_too_deep(scope, parent, child_id, path)
        why = "it was cancelled" if parent.digest and parent.status == "CANCELLED" else None
        why = why or await self._orphans.why_below(scope, parent_id)
        if why is not None and not await self._executions.exists(scope, child_id):
            raise Conflict(f"execution {parent_id} starts nothing any more: {why}")
        return parent.depth + 1

    async def _refuse_too_deep(self, scope: Scope, parent: State, child_id: int, path: str) -> None:
        try:
            depth_below(parent.depth, self._executions.max_child_depth, path)
        except ChildTooDeep:
            # One that is there already was started when more was allowed.
            if not await self._executions.exists(scope, child_id):
                raise

    async def run(self, scope: Scope, grant: CommandGrant, child: Child) -> ChildEnd:
        """Start a child for a task or row and wait for its end; the key makes a second try find the first child."""
        child_id = child_id_of(grant.execution_id, child.key)
        parent = await self._executions.state(scope, grant.execution_id, look=False)
        await self._refuse_too_deep(scope, parent, child_id, child.path)
        await self._start(
            scope, child_id, child.path, child.version, child.payload, parent, None,
            fences.held(COMMAND, grant.lease.proof),
            detached=not child.waits,
        )  # fmt: skip
        if not child.waits:
            return ChildEnd(execution_id=child_id, status="COMPLETED", data={"execution_id": str(child_id)})
        while True:
            seen = self._ended.number
            state = await self._executions.state(scope, child_id)
            if state.ended:
                data = await self._executions.data(scope, result_of(state, child.return_step))
                return ChildEnd(execution_id=child_id, status=state.status, data=data, error=state.error)
            await self._ended.wait(seen, 1.0)


def child_id_of(parent_id: int, key: str) -> int:
    """Return the id of the child a parent starts under a key, the same every time.

    It is some minutes older than the parent's, so that nobody takes it for the newest execution.
    """
    number = int.from_bytes(blake3(f"{parent_id}/{key}".encode()).digest(length=8), "little")
    return (((parent_id >> 22) - number % (1 << 20)) << 22) | ((number >> 20) % (1 << 22))


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        _log.exception("a child execution could not be handled; the reaper will try again")
