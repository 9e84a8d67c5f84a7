"""Which worker gets a command: decisions and waiting workers go in, leased commands and grants come out."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from noetl.engine.dispatch.grants import CommandGrant, LoopGrant, StepContext
from noetl.engine.plan.fact import Fact
from noetl.engine.plan.locality import ANYWHERE, Claimant, Patience, Place, claimant, may_take, nearest, told_place
from noetl.engine.plan.state import State
from noetl.errors import NotFound
from noetl.kernel.ledger.transition import Append
from noetl.model.event import Draft
from noetl.model.stream import Scope


def handed_to(facts: tuple[Fact, ...], worker: str, patience: Patience) -> tuple[tuple[Fact, ...], Fact | None]:
    """Lease the first command that waits for a worker to this one, unless it is first for those near its inputs."""
    open_after = {fact.command_id for fact in facts if fact.event_type == "command.issued"} - {
        fact.command_id for fact in facts if fact.event_type in ("command.completed", "command.failed")
    }
    for number, fact in enumerate(facts):
        if (
            fact.event_type == "command.issued"
            and fact.command_id in open_after
            and "child_execution_id" not in fact.meta
        ):
            near = told_place(fact.meta.get("near"))
            if near is not None and not may_take(claimant(worker), near, 0.0, patience):
                return facts, None
            meta = {**fact.meta, "worker": worker, "attempt": 1, "lease_token": str(uuid.uuid4())}
            handed = msgspec.structs.replace(fact, meta=meta)
            return (*facts[:number], handed, *facts[number + 1 :]), handed
    return facts, None


def first_issued(after: State, appends: tuple[Append, ...]) -> Draft | None:
    """Find the first command that a decision issued and that is for a worker; the one `handed_to` leases, too."""
    for draft in appends[0].drafts:
        if (
            draft.event_type == "command.issued"
            and "child_execution_id" not in draft.meta
            and after.run_of(draft.command_id or "") is not None
        ):
            return draft
    return None


def grant_of(state: State, command_id: str, lease: dict[str, Any], issued_event_id: int) -> CommandGrant:
    """Return what a worker needs to work on a command it holds the lease of."""
    found = state.run_of(command_id)
    if found is None:
        raise NotFound(f"command {command_id} of execution {state.execution_id} has ended")
    step, run = found
    loop = None
    if run.loop is not None:
        assert run.loop_id is not None
        assert run.stage_id is not None
        loop = LoopGrant(
            stage_id=run.stage_id,
            loop_id=run.loop_id,
            mode=run.loop["mode"],
            total=run.loop["total"],
            frame=run.loop["frame"],
            rows_ref=run.rows_ref,
        )
    return CommandGrant(
        execution_id=state.execution_id,
        command_id=command_id,
        step=step,
        attempt=lease["attempt"],
        token=lease["lease_token"],
        lease_seconds=lease["lease_seconds"],
        catalog_id=state.catalog_id,
        issued_event_id=issued_event_id,
        context=StepContext(workload=state.workload, ctx=state.ctx, results=state.results),
        loop=loop,
        worker=lease.get("worker") or "",
    )


class Waiter:
    """One worker that waits for up to `want` commands, up to `loops` of them slots of loops."""

    def __init__(self, worker: str, want: int, who: Claimant, loops: int) -> None:
        self.worker = worker
        self.who = who
        self.want = want
        self.loops = loops
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it was given something."""
        self._promised = 0
        self._granted: list[CommandGrant] = []
        self._settled: asyncio.Future[None] | None = None

    def give(self, grant: CommandGrant) -> None:
        """Hand over what was promised."""
        self._granted.append(grant)
        if not self.woken.done():
            self.woken.set_result(None)

    @contextmanager
    def promised(self, *, slot: bool = False) -> Iterator[Waiter]:
        """Keep it waiting for the time of the block, in which it may be given one command, or one slot of a loop."""
        self.want -= 1
        self.loops -= slot
        self._promised += 1
        try:
            yield self
        finally:
            self._promised -= 1
            if self._settled is not None and not self._promised and not self._settled.done():
                self._settled.set_result(None)

    async def granted(self) -> list[CommandGrant]:
        """Return what it was given, once nothing is promised any more: a promise lasts as long as its transaction."""
        if self._promised:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled
        return self._granted


class Waiters:
    """All that wait, by organization, each in its turn."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._waiting: dict[Scope, deque[Waiter]] = {}

    @contextmanager
    def waiting(
        self, scope: Scope, worker: str, want: int, who: Claimant = ANYWHERE, loops: int | None = None
    ) -> Iterator[Waiter]:
        """Take promises for a worker for the time of the block."""
        waiter = Waiter(worker, want, who, want if loops is None else loops)
        line = self._waiting.setdefault(scope, deque())
        line.append(waiter)
        try:
            yield waiter
        finally:
            if waiter in line:
                line.remove(waiter)
            if not line and self._waiting.get(scope) is line:
                del self._waiting[scope]

    def next(self, scope: Scope, near: Place | None = None, *, slot: bool = False) -> Waiter | None:
        """Return the next in turn that wants one more, if anybody waits; of work that lies somewhere, the nearest."""
        line = self._waiting.get(scope)
        if not line:
            return None
        able = (one for one in line if one.loops > 0) if slot else iter(line)
        waiter = next(able, None) if near is None else nearest(((one.who, one) for one in able), near, self._patience)
        if waiter is None:
            return None
        line.remove(waiter)
        if waiter.want > 1:
            line.append(waiter)
        return waiter
