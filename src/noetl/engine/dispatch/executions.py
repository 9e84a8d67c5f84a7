"""Decides and records: a trigger goes in, the decision's events stand in the ledger when it returns.

States are kept in memory as a convenience. The ledger arbitrates: a decision is recorded only if the execution's
stream is where the state was, so whoever decided on an old state reads what is new and decides again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from noetl.engine.catalog.evaluation import at_once
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.dispatch.assignment import Waiter, Waiters, first_issued, grant_of, handed_to
from noetl.engine.dispatch.drafts import Drafting, new_lease
from noetl.engine.dispatch.facts.port import IssuedCommand
from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.large_values import slimmed, with_rows, with_stored_rows
from noetl.engine.dispatch.loops.results import loaded
from noetl.engine.dispatch.open_executions.port import OpenExecutions, OpenHead
from noetl.engine.plan.decide import COMMAND_LEASE_SECONDS, Decision, decide, needed, undecidable
from noetl.engine.plan.execution_end import cancellation
from noetl.engine.plan.fact import Fact
from noetl.engine.plan.limits import MAX_CHILD_DEPTH
from noetl.engine.plan.locality import Patience, told_place
from noetl.engine.plan.planned import Plan
from noetl.engine.plan.state import Result, State, evolve
from noetl.engine.plan.template_names import whole
from noetl.engine.plan.trigger import Cancelled, CommandEnded, Start, Trigger
from noetl.errors import (
    UNREADABLE,
    EventInvalid,
    NoetlError,
    NotFound,
    PayloadCollected,
    VersionConflict,
)
from noetl.faults import reach
from noetl.kernel.ledger.after_commit import after_commit, awaited_after_commit
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Fence, Transition
from noetl.kernel.payloads.codec import decode_json
from noetl.kernel.payloads.envelope import resolve
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.templates.bounds.meter import Lengthy
from noetl.model.event import Draft
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, execution_stream

_log = logging.getLogger(__name__)

KEPT = 2_000
"""Executions whose state stays in memory."""
KEPT_ENDED = 256
"""Ended ones that stay besides: whoever started them will soon ask how they ended."""


DECISIONS_BEGUN_MAX = 5
"""How often a lengthy decision is begun before its execution ends, whatever cut it off: a kill, a restart, the memory."""


class DecisionCutOff(NoetlError):
    """A decision was begun again and again and never came to its end."""

    code = "decision_cut_off"

    def __init__(self, state: State, trigger: Trigger) -> None:
        step = None
        if isinstance(trigger, CommandEnded) and (found := state.run_of(trigger.command_id)) is not None:
            step = found[0]
        what = (
            f"what follows step {step}" if step else "how it begins" if isinstance(trigger, Start) else "how it goes on"
        )
        super().__init__(
            f"playbook {state.path or trigger_path(trigger)}: deciding {what} was begun {DECISIONS_BEGUN_MAX} times and"
            " never came to its end: each time its process was killed or stopped while templates were evaluated"
        )


def trigger_path(trigger: Trigger) -> str:
    """Return the playbook that a trigger starts."""
    return trigger.path if isinstance(trigger, Start) else ""


@dataclass
class _Known:
    """What is known of one execution here."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    state: State | None = None


@dataclass(frozen=True)
class Decided:
    """What a trigger led to."""

    state: State
    facts: tuple[Fact, ...]
    grant: CommandGrant | None = None
    given: int = 0
    """Commands that went to workers that waited for one."""


class Executions:
    """The executions of all organizations, decided by this process."""

    def __init__(
        self,
        ledger: Ledger,
        payloads: PayloadStore,
        catalog: Catalog,
        drafting: Drafting,
        mint: Callable[[], int],
        running: OpenExecutions,
        *,
        command_lease_seconds: float = COMMAND_LEASE_SECONDS,
        patience: Patience | None = None,
        max_child_depth: int = MAX_CHILD_DEPTH,
    ) -> None:
        self._ledger = ledger
        self._payloads = payloads
        self._catalog = catalog
        self._drafting = drafting
        self._mint = mint
        self._running = running
        self._evaluating = catalog.plans.evaluating
        self._lengthy: set[tuple[Scope, int]] = set()
        self._lease_seconds = command_lease_seconds
        self.max_child_depth = max_child_depth
        """How many executions may be above one."""
        self.patience = patience or Patience()
        """How long work is left to workers near its inputs."""
        self.waiters = Waiters(self.patience)
        """Workers that wait for a command."""
        self._known: OrderedDict[tuple[Scope, int], _Known] = OrderedDict()
        self._ended: OrderedDict[tuple[Scope, int], State] = OrderedDict()
        self.on_issued: Callable[[Scope, int], None] = lambda scope, count: None
        """Called when commands wait for a worker."""
        self.on_kept: Callable[[], None] = lambda: None
        """Called when commands wait for workers near their inputs, so that others look for them later."""
        self.on_ended: Callable[[Scope, State], None] = lambda scope, state: None
        """Called when an execution has ended."""
        self.on_child: Callable[[Scope, State, Fact], None] = lambda scope, state, fact: None
        """Called when a step waits for a child execution that has to be started."""

    async def state(self, scope: Scope, execution_id: int, *, look: bool = True) -> State:
        """Return an execution's state up to the ledger's end; without `look`, as this process knows it, if it does."""
        if not look and (ended := self._ended.get((scope, execution_id))) is not None:
            return ended
        known = self._entry(scope, execution_id)
        if not look and known.state is not None:
            return known.state
        async with known.lock:
            known.state = await self._read(scope, execution_id, known.state)
            return known.state

    async def state_with(self, scope: Scope, execution_id: int, command_id: str) -> State:
        """Return a state in which a command is open, from memory where this process issued it."""
        known = self._known.get((scope, execution_id))
        if known is not None and known.state is not None and known.state.run_of(command_id) is not None:
            return known.state
        return await self.state(scope, execution_id)

    async def exists(self, scope: Scope, execution_id: int) -> bool:
        """Tell whether there is such an execution."""
        try:
            await self.state(scope, execution_id)
        except NotFound:
            return False
        return True

    async def plan(self, scope: Scope, state: State) -> Plan:
        """Return the playbook version an execution runs."""
        return await self._catalog.plan(scope, state.catalog_id)

    async def trigger(
        self,
        scope: Scope,
        execution_id: int,
        trigger: Trigger,
        *,
        fences: Sequence[Fence] = (),
        worker: str | None = None,
        tally: Callable[[State], Any] | None = None,
    ) -> Decided:
        """Decide on a trigger and record what follows, together with the leases it relies on.

        With `worker`, the first command that becomes available is leased to it in the same transaction. `tally` gives
        the outcome of a stage whose last command this is. A trigger that was decided before changes nothing.
        """
        known = self._entry(scope, execution_id)
        async with known.lock:
            if known.state is None and not isinstance(trigger, Start):
                known.state = await self._read(scope, execution_id, None)
            while True:
                state = known.state or State(execution_id=execution_id)
                decision, plan = await self._decide(scope, state, trigger, tally)
                if not decision.facts:
                    return Decided(state, ())
                try:
                    decided = await self._record(scope, state, decision, plan, fences, worker)
                except VersionConflict:
                    known.state = await self._read(scope, execution_id, known.state)
                    continue
                except PayloadCollected:
                    continue
                except EventInvalid as problem:
                    if isinstance(trigger, Start) or decision.state.ended:
                        raise
                    # What the ledger cannot hold can never be recorded: the execution ends with the reason.
                    fact = undecidable(state, problem)
                    ending = Decision((fact,), evolve(state, fact))
                    decided = await self._record(scope, state, ending, plan, fences, None)
                known.state = decided.state
                break
            if (scope, execution_id) in self._lengthy:
                forgetting = self._running.decided(scope, execution_id)
                # What is not forgotten now counts on, so the next decision tries once more.
                if await awaited_after_commit("forgetting that it was lengthy", forgetting):
                    self._lengthy.discard((scope, execution_id))
        self._tell(scope, decided)
        return decided

    def version_known(self, scope: Scope, execution_id: int) -> int:
        """Return up to which version this process has an execution's state in memory; 0 if it has none."""
        known = self._known.get((scope, execution_id))
        return 0 if known is None or known.state is None else known.state.version

    async def cancel_unread(self, scope: Scope, head: OpenHead, wish: Cancelled) -> None:
        """Cancel an open execution without reading its events; VersionConflict if it has gone on since.

        However long its history is, and however busy those who drive it, this takes one transaction.
        """
        await self._end_unread(scope, head, cancellation(wish, None))

    async def fail_unread(self, scope: Scope, execution_id: int, problem: NoetlError) -> bool:
        """Fail an execution whose events can never be read, and tell whether it was open; VersionConflict if it went on.

        Nobody can decide about it, so nothing else would ever end it.
        """
        head = await self._running.head(scope, execution_id)
        if head is None:
            return False
        _log.error("execution %s cannot be read and ends: %s", execution_id, problem.message)
        # How many errors it let pass is among what cannot be read.
        fact = msgspec.structs.replace(undecidable(State(execution_id=execution_id), problem), meta={})
        await self._end_unread(scope, head, fact)
        return True

    async def _end_unread(self, scope: Scope, head: OpenHead, fact: Fact) -> None:
        state = State(
            execution_id=head.execution_id,
            version=head.version,
            status="RUNNING",
            catalog_id=head.catalog_id,
            path=head.path,
            parent_execution_id=head.parent_execution_id,
            parent_command_id=head.parent_command_id,
        )
        decision = Decision((fact,), evolve(state, fact))
        async with self._entry(scope, head.execution_id).lock:
            decided = await self._record(scope, state, decision, None, (), None)
        self._known.pop((scope, head.execution_id), None)
        after_commit("telling the end", self.on_ended, scope, decided.state)

    def _tell(self, scope: Scope, decided: Decided) -> None:
        issued = [fact for fact in decided.facts if fact.event_type == "command.issued" and fact.command_id]
        waiting = -decided.given
        kept = False
        for fact in issued:
            if fact.meta.get("child_execution_id"):
                after_commit("starting a child", self.on_child, scope, decided.state, fact)
            elif "worker" not in fact.meta:
                waiting += 1
                kept = kept or "near" in fact.meta
        if waiting > 0:
            after_commit("waking workers", self.on_issued, scope, waiting)
            if kept:
                after_commit("waking workers later", self.on_kept)
        if decided.state.ended:
            self._known.pop((scope, decided.state.execution_id), None)
            self._ended[scope, decided.state.execution_id] = decided.state
            while len(self._ended) > KEPT_ENDED:
                self._ended.popitem(last=False)
            after_commit("telling the end", self.on_ended, scope, decided.state)

    async def _decide(
        self, scope: Scope, state: State, trigger: Trigger, tally: Callable[[State], Any] | None
    ) -> tuple[Decision, Plan | None]:
        plan = None
        try:
            trigger = await _tallied(state, trigger, tally)
        except UNREADABLE as problem:
            # What its rows came to can never be read, so the loop can never end otherwise.
            fact = undecidable(state, problem)
            return Decision((fact,), evolve(state, fact)), plan
        try:
            catalog_id = trigger.catalog_id if isinstance(trigger, Start) else state.catalog_id
            plan = await self._catalog.plan(scope, catalog_id)
            data = {step: await self.load(scope, ref) for step, ref in needed(plan, state, trigger).items()}
            deciding = partial(
                decide, plan, state, trigger, self._mint, data,
                command_lease_seconds=self._lease_seconds, max_child_depth=self.max_child_depth,
            )  # fmt: skip
            try:
                return at_once(deciding), plan
            except Lengthy:
                return await self._decide_lengthily(scope, state, trigger, deciding), plan
        except Exception as problem:
            # Deciding itself touches no file and no server: what the system says is about what had to be fetched.
            is_passing = isinstance(problem, OSError) or (
                isinstance(problem, NoetlError) and problem.disposition == "transient"
            )
            if isinstance(trigger, Start) or is_passing:
                raise
            # Whatever goes wrong in a decision, the execution ends with the reason instead of standing still.
            _log.exception("execution %s cannot be decided about", state.execution_id)
            fact = undecidable(state, problem)
            return Decision((fact,), evolve(state, fact)), plan

    async def _decide_lengthily(
        self, scope: Scope, state: State, trigger: Trigger, deciding: Callable[[], Decision]
    ) -> Decision:
        """Decide beside the event loop, unless that was begun too often and never came to its end."""
        begun = await self._running.deciding(scope, state.execution_id, state.version)
        if begun > DECISIONS_BEGUN_MAX:
            raise DecisionCutOff(state, trigger)
        reach("decide.lengthy")
        decision = await self._evaluating.beside(scope, deciding)
        self._lengthy.add((scope, state.execution_id))
        return decision

    async def load(self, scope: Scope, ref: PayloadRef) -> Any:
        """Return the value a reference stands for; for a loop's, what its rows came to."""
        return await loaded(self._payloads, scope, ref)

    async def whole(self, scope: Scope, issued: IssuedCommand) -> IssuedCommand:
        """Return what a command was issued with, fetched as far as it stands outside the ledger."""
        if issued.fields_ref is None:
            return issued
        moved = decode_json(await self._payloads.fetch(scope, issued.fields_ref))
        return IssuedCommand(issued.meta, {**issued.context, **moved.get("context", {})})

    async def data(self, scope: Scope, result: Result) -> Any:
        """Return what a step came to, fetched as far as it stands outside the ledger."""
        return result.data if result.outside is None else whole(result, await self.load(scope, result.outside))

    async def _record(
        self,
        scope: Scope,
        state: State,
        decision: Decision,
        plan: Plan | None,
        fences: Sequence[Fence],
        worker: str | None,
    ) -> Decided:
        facts = await with_stored_rows(self._payloads, scope, decision.facts)
        handed: Fact | None = None
        if worker is not None and not decision.state.ended:
            facts, handed = handed_to(facts, worker, self.patience)
        appends = self._drafting.appends(scope, state.execution_id, facts, expected_version=state.version)
        appends = await slimmed(self._payloads, appends)
        # References of collections are known only now: the state holds what its events say.
        after = with_rows(decision.state, facts)
        issued = first_issued(after, appends)
        waiter = None
        if issued is not None and handed is None:
            is_slot = issued.loop_id is not None
            waiter = self.waiters.next(scope, told_place(issued.meta.get("near")), slot=is_slot)
        if issued is not None and waiter is not None:
            with waiter.promised(slot=issued.loop_id is not None):
                await self._write_claimed(scope, after, appends, fences, issued, waiter)
            return Decided(after, facts, given=1)
        # Made before anything is recorded, as is everything else that could fail an answer.
        grant = None
        if handed is not None and issued is not None and plan is not None:
            grant = grant_of(after, handed.command_id or "", handed.meta, issued.event_id)
        await self._write(after, appends, fences)
        return Decided(after, facts, grant)

    async def _write_claimed(
        self,
        scope: Scope,
        after: State,
        appends: tuple[Append, ...],
        fences: Sequence[Fence],
        issued: Draft,
        waiter: Waiter,
    ) -> None:
        """Record a decision together with the claim of its first command by a worker that waits."""
        command_id = issued.command_id or ""
        lease = new_lease(waiter.worker, 1, issued.meta["lease_seconds"])
        claim = self._drafting.claim(scope, after.execution_id, command_id, issued.event_id, lease)
        grant = grant_of(after, command_id, lease, issued.event_id)
        await self._write(after, (*appends, claim), fences)
        waiter.give(grant)

    async def _write(self, after: State, appends: tuple[Append, ...], fences: Sequence[Fence]) -> None:
        own = appends[0]
        assert after.version == (own.expected_version or 0) + len(own.drafts), "a decision and its events tell the same"
        reach("decide.before_record")
        await self._ledger.transact(Transition(appends, tuple(fences)))
        reach("decide.after_record")

    def _entry(self, scope: Scope, execution_id: int) -> _Known:
        key = (scope, execution_id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known()
            while len(self._known) > KEPT:
                oldest = next(iter(self._known))
                if self._known[oldest].lock.locked():
                    break
                del self._known[oldest]
        self._known.move_to_end(key)
        return known

    async def _read(self, scope: Scope, execution_id: int, state: State | None) -> State:
        """Fold what the ledger has beyond a state."""
        after = state or State(execution_id=execution_id)
        async for event in self._ledger.read(execution_stream(scope, execution_id), after.version + 1):
            after = evolve(after, await resolve(self._payloads, event))
        if after.version == 0:
            hint = "`noetl executions list` shows what there is"
            raise NotFound(f"there is no execution {execution_id}", hint=hint)
        return after


async def _tallied(state: State, trigger: Trigger, tally: Callable[[State], Any] | None) -> Trigger:
    """Return a trigger with what came of a stage's rows, where it is the end of the stage's last command."""
    if tally is None or not isinstance(trigger, CommandEnded):
        return trigger
    found = state.run_of(trigger.command_id)
    if found is None or len(found[1].open) != 1:
        return trigger
    return msgspec.structs.replace(trigger, tally=await tally(state))
