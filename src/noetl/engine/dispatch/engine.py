"""The engine of one process: everything that decides and hands out work, connected, with what people ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from noetl.engine.catalog.plan_cache import Plans
from noetl.engine.catalog.playbooks import Catalog, Entry
from noetl.engine.dispatch.cascade import Cascade, Orphans
from noetl.engine.dispatch.children import Children
from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.executions import Executions
from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.dispatch.loops.frames import Frames
from noetl.engine.dispatch.loops.progress import LoopsSoFar
from noetl.engine.dispatch.loops.results import Gathering
from noetl.engine.dispatch.polling import Signal
from noetl.engine.dispatch.reaper import Reaper
from noetl.engine.dispatch.reports.references import References
from noetl.engine.dispatch.request_keys import request_key, stands_for
from noetl.engine.dispatch.stores import EngineStores
from noetl.engine.plan.decide import COMMAND_LEASE_SECONDS
from noetl.engine.plan.limits import MAX_CHILD_DEPTH
from noetl.engine.plan.locality import DISTANCES, Patience
from noetl.engine.plan.planned import USUAL, LoopDefaults
from noetl.engine.plan.state import State
from noetl.engine.plan.trigger import Cancelled, Start
from noetl.engine.plan.workload import merged
from noetl.errors import Conflict, InputError, KeyReused
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.payloads.consumers import for_consumer
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope

LOOK_MARGIN_SECONDS = 0.005
"""How much later than by this process's clock one looks for work that has opened by the database's."""
LOOK_SECONDS = 1.0
"""How often one looks whether an execution that another process drives has ended."""


class Engine:
    """Starts, cancels and re-runs executions and gives workers a dispatch."""

    def __init__(
        self,
        stores: EngineStores,
        ledger: Ledger,
        payloads: PayloadStore,
        mint: Callable[[], int],
        mint_many: Callable[[int], list[int]],
        producer: str,
        *,
        kinds: tuple[str, ...] = (),
        reap_every_seconds: float = 1.0,
        idle_seconds: float = 10.0,
        command_lease_seconds: float = COMMAND_LEASE_SECONDS,
        patience: Patience | None = None,
        defaults: LoopDefaults = USUAL,
        max_child_depth: int = MAX_CHILD_DEPTH,
    ) -> None:
        self._stores = stores
        work, running, facts = stores.work, stores.running, stores.facts
        self._mint = mint
        self.work = Signal()
        """Touched when commands wait for a worker."""
        self.ended = Signal()
        """Touched when an execution ends."""
        self.so_far = LoopsSoFar(work)
        """How far loops are that somebody works at, beyond what is committed."""
        self._finishing: dict[tuple[Scope, int], set[asyncio.Future[State]]] = {}
        self._ledger = ledger
        self._drafting = Drafting(mint_many, producer)
        self.catalog = Catalog(stores.entries, payloads, mint, producer, Plans(kinds, defaults))
        self.executions = Executions(
            ledger, payloads, self.catalog, self._drafting, mint, running, command_lease_seconds=command_lease_seconds,
            patience=patience, max_child_depth=max_child_depth,
        )  # fmt: skip
        self._references = References(payloads)
        self.frames = Frames(
            work, facts, ledger, self._drafting, Gathering(facts, for_consumer(payloads, "reducer")), self._references,
            self.work.touch,
        )  # fmt: skip
        orphans = Orphans(running, facts)
        self._cascade = Cascade(running, self.executions, self.work.touch)
        self.children = Children(work, facts, self.executions, self.catalog, orphans, self.ended)
        self.reaper = Reaper(
            work, running, facts, ledger, self.executions, self.frames, self.children, orphans, self._cascade, self._drafting,
            self.work, every_seconds=reap_every_seconds, idle_seconds=idle_seconds,
        )  # fmt: skip
        self.executions.on_issued = lambda scope, count: self.work.touch()
        self.executions.on_kept = self._look_later
        self.executions.on_child = self.children.start_soon
        self.executions.on_ended = self._on_ended

    def _look_later(self) -> None:
        """Wake those who wait when work that is left to near workers opens for those farther away."""
        patience, loop = self.executions.patience, asyncio.get_running_loop()
        for seconds in sorted({patience.opens_after(distance) for distance in DISTANCES} - {0.0}):
            loop.call_later(seconds + LOOK_MARGIN_SECONDS, self.work.touch)

    def _on_ended(self, scope: Scope, state: State) -> None:
        self.ended.touch()
        for waiter in self._finishing.get((scope, state.execution_id), ()):
            if not waiter.done():
                waiter.set_result(state)
        self.children.ended_soon(scope, state)
        if state.status == "FAILED":
            # What it waited for would go on for nobody; if this process dies first, the reaper stops it.
            # A cancellation says itself whether it cascades.
            self.children.soon(self._cascade.cancel_waited(scope, state))

    def dispatch(self, scope: Scope) -> LocalDispatch:
        """Return the dispatch of an organization for workers in this process."""
        return LocalDispatch(
            scope, self._stores.work, self._stores.running, self._stores.facts, self._ledger, self.executions, self.frames, self.children, self.catalog,
            self._drafting, self.work, self.so_far, self._references,
        )  # fmt: skip

    async def close(self) -> None:
        """Stop pushing, and finish what is under way."""
        await self.reaper.stop()
        await self.children.close()

    async def start(
        self,
        scope: Scope,
        entry: Entry,
        payload: dict[str, Any] | None = None,
        *,
        requested_by: str,
        key: str | None = None,
        parent_execution_id: int | None = None,
    ) -> State:
        """Start an execution of a registered playbook and return its state.

        With a `key`, a second request under it gives the execution the first one started.
        """
        plan = await self.catalog.plan(scope, entry.catalog_id)
        execution_id = await self._new_id(scope, key)
        parent_id, depth = parent_execution_id, 0
        if parent_id is not None:
            depth = await self.children.depth_below(scope, parent_id, execution_id, entry.path)
        # Rendered here and recorded: whoever reads or repeats the execution gets the same values.
        workload = await self.catalog.plans.evaluating.run(
            scope,
            lambda: plan.workload.in_force(payload or {}, execution_id=execution_id, catalog_id=entry.catalog_id),
        )
        trigger = Start(
            path=entry.path,
            version=entry.version,
            catalog_id=entry.catalog_id,
            digest=entry.digest,
            workload=workload,
            requested_by=requested_by,
            key="requested" if key is None else request_key(key),
            parent_execution_id=parent_id,
            depth=depth,
            # Whoever asks for it, the parent does not know of it, and waits for nothing.
            detached=parent_id is not None,
        )
        return await self._started(scope, execution_id, trigger, key)

    async def _started(self, scope: Scope, execution_id: int, trigger: Start, key: str | None) -> State:
        try:
            return (await self.executions.trigger(scope, execution_id, trigger)).state
        except KeyReused:
            # Somebody was quicker with the same key: theirs is the execution it stands for.
            return await self.executions.state(scope, await self._new_id(scope, key))

    async def _new_id(self, scope: Scope, key: str | None) -> int:
        """Return a new id, or the execution a key stands for already; of two that ask at once one gets the other's."""
        found = None if key is None else await stands_for(self._stores.facts, scope, key)
        return found or self._mint()

    async def rerun(
        self,
        scope: Scope,
        execution_id: int,
        *,
        from_step: str | None,
        payload: dict[str, Any],
        requested_by: str,
        key: str | None = None,
    ) -> State:
        """Start a new execution of the same version with the same workload, from a step on what came before it.

        With a `key`, a second request under it gives the execution the first one started.
        """
        before = await self.executions.state(scope, execution_id)
        if not before.ended:
            raise Conflict(f"execution {execution_id} has not ended", hint="cancel it first")
        plan = await self.executions.plan(scope, before)
        if from_step is not None and from_step not in plan.steps:
            steps = f"its steps are {', '.join(plan.steps)}"
            raise InputError(f"the playbook {before.path} has no step {from_step!r}", hint=steps)
        entry = await self.catalog.by_id(scope, before.catalog_id)
        kept = {name: result for name, result in before.results.items() if name != from_step}
        trigger = Start(
            path=entry.path,
            version=entry.version,
            catalog_id=entry.catalog_id,
            digest=entry.digest,
            workload=merged(before.workload, payload),
            requested_by=requested_by,
            key="requested" if key is None else request_key(key),
            rerun_of=execution_id,
            from_step=from_step,
            ctx=before.ctx if from_step else {},
            results=msgspec.to_builtins(kept) if from_step else {},
        )
        return await self._started(scope, await self._new_id(scope, key), trigger, key)

    async def cancel(self, scope: Scope, execution_id: int, *, reason: str, by: str, cascade: bool = True) -> list[int]:
        """Cancel an execution and, with `cascade`, what it started; return those that were cancelled.

        One that has ended stays as it is; what it started and still runs is cancelled all the same.
        """
        wish = Cancelled(reason=reason, by=by, cascade=cascade)
        return await self._cascade.cancel(scope, execution_id, wish, below_ended=True)

    async def finished(self, scope: Scope, execution_id: int, timeout: float | None = None) -> State:
        """Wait for an execution's end and return its last state, or the present one after the timeout."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        waiter: asyncio.Future[State] = loop.create_future()
        waiters = self._finishing.setdefault((scope, execution_id), set())
        waiters.add(waiter)
        looked = False
        try:
            while True:
                # What ends in this process says so itself; for other processes one looks.
                state = await self.executions.state(scope, execution_id, look=looked)
                looked = True
                left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - loop.time())
                if state.ended or left <= 0:
                    return state
                done, _ = await asyncio.wait([waiter], timeout=left)
                if done:
                    return waiter.result()
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._finishing.pop((scope, execution_id), None)
