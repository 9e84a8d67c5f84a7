"""What happens next: an execution's state and a trigger go in, the facts that follow come out. Pure.

A trigger that was decided before gives no facts, so it may be delivered any number of times. A decision never leaves
an execution without a next event: something is open, or the execution ends with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from noetl.engine.plan.execution_end import cancellation, end, stop_the_others
from noetl.engine.plan.fact import Fact, recorded_fact, refuse_unrecordable
from noetl.engine.plan.limits import MAX_CHILD_DEPTH, ended_by, out_of_time, reached
from noetl.engine.plan.planned import Plan, Reads
from noetl.engine.plan.state import Arrival, Result, State, evolve, gathered, net
from noetl.engine.plan.step_entry import Entering
from noetl.engine.plan.step_exit import leave
from noetl.engine.plan.trigger import Cancelled, CommandEnded, Doubt, OutOfTime, Start, Trigger
from noetl.errors import NoetlError, TemplateFailed
from noetl.model.payload_ref import FRAMES, PayloadRef

COMMAND_LEASE_SECONDS = 30.0
"""How long a worker may be silent before it loses a command; a loop's slots have the lease of their frames."""
ENTERED_MAX = 1_000
"""Steps that one decision may enter, whatever the playbook's limits: what it writes is one transaction."""
IDLE_STEPS = 32
"""Steps without work that one decision may pass; the next one goes to a worker, so that transactions stay small."""


class Decision(msgspec.Struct, frozen=True):
    """The facts and the state after them."""

    facts: tuple[Fact, ...]
    state: State


def decide(
    plan: Plan,
    state: State,
    trigger: Trigger,
    mint: Callable[[], int],
    loaded: Mapping[str, Any] | None = None,
    *,
    command_lease_seconds: float = COMMAND_LEASE_SECONDS,
    max_child_depth: int = MAX_CHILD_DEPTH,
) -> Decision:
    """Decide what follows from a trigger.

    `mint` gives ids for loops, stages and child executions. `loaded` holds the data behind the references that `needed`
    gives, by step.
    """
    deciding = Deciding(plan, state, mint, loaded or {}, command_lease_seconds, max_child_depth)
    if not state.ended:
        deciding.take(trigger)
    return Decision(tuple(deciding.facts), deciding.state)


def needed(plan: Plan, state: State, trigger: Trigger) -> dict[str, PayloadRef]:
    """Return, by step, the references of data kept outside the ledger that the templates of this decision may look at."""
    steps = {arrival.step for arrival in state.waiting}
    kept = _outside(state.results)
    read = Reads()
    if isinstance(trigger, CommandEnded):
        found = state.run_of(trigger.command_id)
        if found is None:
            return {}
        own = found[0]
        kept.pop(own, None)
        manifest = None if trigger.tally is None else trigger.tally.manifest
        if (ref := trigger.ref or manifest) is not None:
            kept[own] = ref
        read = plan.step(own).reads_on_exit
        # What a step came to is its `output` until it is left.
        read |= Reads(
            frozenset({own} if "output" in read.data else ()), frozenset({own} if "output" in read.rows else ())
        )
        steps.update(plan.graph.targets[own])
    elif isinstance(trigger, Start):
        kept = _outside(msgspec.convert(trigger.results, dict[str, Result]))
        steps.add(trigger.from_step or plan.playbook.entry)
    if not kept:
        return {}
    if plan.playbook.final is not None:
        steps.add(plan.playbook.final)
    read |= plan.reads_from(steps)
    return {step: ref for step, ref in kept.items() if step in (read.rows if ref.media_type == FRAMES else read.data)}


def _outside(results: Mapping[str, Result]) -> dict[str, PayloadRef]:
    return {step: ref for step, result in results.items() if (ref := result.outside) is not None}


class Deciding:
    """One decision under way."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        mint: Callable[[], int],
        loaded: Mapping[str, Any],
        command_lease_seconds: float = COMMAND_LEASE_SECONDS,
        max_child_depth: int = MAX_CHILD_DEPTH,
    ) -> None:
        self.plan = plan
        self.state = state
        self.mint = mint
        self.loaded = loaded
        self.command_lease_seconds = command_lease_seconds
        self.max_child_depth = max_child_depth
        self.facts: list[Fact] = []
        self._entered = 0
        self._idle_steps = IDLE_STEPS

    def say(self, fact: Fact) -> None:
        """Add a fact and go on from the state it leads to, which is the one its event will lead to."""
        fact = recorded_fact(fact)
        self.facts.append(fact)
        if fact.at == "execution":
            self.state = evolve(self.state, fact)

    def may_pass(self) -> bool:
        """Take one of the steps without work that this decision may pass; False if there are none left."""
        self._idle_steps -= 1
        return self._idle_steps >= 0

    def take(self, trigger: Trigger) -> None:
        """Decide on one trigger."""
        if isinstance(trigger, Start):
            self._start(trigger)
        elif self.state.status == "NEW":
            return  # nobody asked for it, so there is nothing to end
        elif isinstance(trigger, CommandEnded):
            self._command_ended(trigger)
        elif isinstance(trigger, Cancelled):
            self.say(cancellation(trigger, self.state.swallowed))
        elif isinstance(trigger, OutOfTime):
            limit = out_of_time(self.plan.playbook.limits)
            if limit is not None:
                self.say(ended_by(limit, self.state, None))
        elif isinstance(trigger, Doubt):
            self._doubt()

    def _start(self, trigger: Start) -> None:
        if self.state.status != "NEW":
            return
        meta = {
            "path": trigger.path,
            "version": trigger.version,
            "playbook_digest": trigger.digest,
            "requested_by": trigger.requested_by,
            "parent_command_id": trigger.parent_command_id,
            "depth": trigger.depth,
            "detached": trigger.detached or None,
            "rerun_of": None if trigger.rerun_of is None else str(trigger.rerun_of),
            "from_step": trigger.from_step,
            "limit_seconds": self.plan.playbook.limits.seconds,
        }
        self.say(
            Fact(
                event_type="execution.requested",
                catalog_id=trigger.catalog_id,
                parent_execution_id=trigger.parent_execution_id,
                meta={name: value for name, value in meta.items() if value is not None},
                key=trigger.key,
            )
        )
        context: dict[str, Any] = {"workload": trigger.workload}
        if trigger.rerun_of is not None:
            context |= {"ctx": trigger.ctx, "results": trigger.results}
        self.say(Fact(event_type="playbook.initialized", catalog_id=trigger.catalog_id, context=context))
        self._enter(trigger.from_step or self.plan.playbook.entry, {"entry": True})
        self._settle()

    def _command_ended(self, trigger: CommandEnded) -> None:
        found = self.state.run_of(trigger.command_id)
        if found is None:
            return
        step, run = found
        trigger = self._sound(step, trigger)
        error = trigger.error or {}
        meta: dict[str, Any] = {"attempt": trigger.attempt, "duration_ms": trigger.duration_ms}
        if trigger.swallowed:
            meta["swallowed"] = trigger.swallowed
        if trigger.tries:
            meta["tries"] = trigger.tries
        if trigger.accumulate is not None and trigger.status == "ok":
            meta["accumulate"] = trigger.accumulate
        result: dict[str, Any] = {"status": trigger.status}
        # The counts of a child's loop stand beside the reference to its rows' results, as its own do.
        if trigger.data is not None and (trigger.ref is None or trigger.ref.media_type == FRAMES):
            result["data"] = trigger.data
        if trigger.selected:
            result["selected"] = trigger.selected
        if trigger.last_task is not None:
            result |= {"tasks": trigger.tasks, "last_task": trigger.last_task}
        if error:
            result["error"] = error
        for artifact in trigger.artifacts:
            self.say(
                Fact(
                    event_type="artifact.stored",
                    node_name=step,
                    command_id=trigger.command_id,
                    payload_ref=artifact,
                )
            )
        failed = trigger.status == "error"
        self.say(
            Fact(
                event_type="command.failed" if failed else "command.completed",
                node_name=step,
                command_id=trigger.command_id,
                stage_id=run.stage_id,
                loop_id=run.loop_id,
                status="failed" if failed else "completed",
                meta=meta,
                context={"set": net(trigger.ctx_writes.items())} if trigger.ctx_writes else {},
                result=result,
                error=error.get("message") or "failed" if failed else None,
                payload_ref=trigger.ref,
                key=f"{trigger.command_id}/ended/{trigger.attempt}",
            )
        )
        if not self.state.active[step].open:
            leave(self, step, trigger)
            self._settle()

    def _sound(self, step: str, trigger: CommandEnded) -> CommandEnded:
        """Return a report as it is, or as an error if what it says cannot be recorded or gathered."""
        where = self.plan.step(step).where
        try:
            given = (trigger.data, trigger.selected, trigger.tasks, trigger.ctx_writes, trigger.error, trigger.tries)
            if said := [value for value in given if value]:
                refuse_unrecordable(said, f"{where}, result")
            if trigger.accumulate is not None and trigger.status == "ok":
                where += ", field output.accumulate"
                if trigger.ref is not None:
                    raise TemplateFailed("the result is too large to be gathered")
                gathered(self.state.results.get(step), trigger.data, trigger.accumulate)
        except NoetlError as problem:
            message = problem.message if problem.message.startswith(where) else f"{where}: {problem.message}"
            error = {"kind": "transform", "message": message, "retryable": False, "code": problem.code}
            return CommandEnded(
                command_id=trigger.command_id,
                attempt=trigger.attempt,
                status="error",
                error=error,
                swallowed=trigger.swallowed,
                artifacts=trigger.artifacts,
                duration_ms=trigger.duration_ms,
                tally=trigger.tally,
            )
        return trigger

    def _doubt(self) -> None:
        """Go on if anything can; what is under way with nothing open to end it would stay for ever, so it ends here."""
        if self.state.active and not any(run.open for run in self.state.active.values()):
            steps = ", ".join(self.state.active)
            self.say(undecidable(self.state, f"nothing is open that could end the steps under way ({steps})"))
        else:
            self._settle()

    def _enter(self, step: str, cause: dict[str, Any], *, final: bool = False) -> None:
        self._entered += 1
        if (limit := reached(self.plan.playbook.limits, self.state)) is not None:
            self.say(ended_by(limit, self.state, step))
            return
        Entering(self, step, cause, final=final).enter()

    def _settle(self) -> None:
        """Enter whatever may begin now; when nothing is open any more, end."""
        while not self.state.ended:
            if self._entered > ENTERED_MAX:
                last = self.facts[-1].node_name
                reason = f"{ENTERED_MAX} steps were entered at once without any work, the last one was {last}"
                self.say(undecidable(self.state, reason))
                return
            if self.state.failure is not None and not self.state.final_entered:
                stop_the_others(self)
            elif (arrival := self._next_arrival()) is not None:
                cause = {"from": arrival.source, "arc": arrival.arc}
                self._enter(arrival.step, {name: value for name, value in cause.items() if value is not None})
                continue
            if self.state.active:
                return
            final = self.plan.playbook.final
            if final is not None and not self.state.final_entered and final not in self.state.runs:
                self._enter(final, {"final": True}, final=True)
                continue
            end(self)

    def _next_arrival(self) -> Arrival | None:
        """Find the first step that was arrived at and that nothing under way can lead to any more."""
        state, graph, final = self.state, self.plan.graph, self.plan.playbook.final
        # Whatever leads to the final step, it runs after everything else.
        waiting = [arrival for arrival in state.waiting if arrival.step != final or final in state.runs]
        for arrival in waiting:
            goal = arrival.step
            if goal in state.active:
                continue
            if not graph.is_reduce(goal):
                return arrival
            # Steps in a ring lead to each other: were each to wait for the other, both would wait for ever.
            if not any(graph.reaches(step, goal) for step in state.active) and not any(
                graph.is_before(other.step, goal) for other in waiting
            ):
                return arrival
        return None


def undecidable(state: State, problem: Exception | str) -> Fact:
    """Return the end of an execution that cannot be decided about, with its reason."""
    if isinstance(problem, NoetlError):
        said = problem.message
    else:
        said = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"
    return Fact(
        event_type="execution.failed",
        status="failed",
        error=f"the execution cannot go on: {said}"[:8000],
        meta={"swallowed": state.swallowed},
    )
