"""What happens next: an execution's state and a trigger go in, the facts that follow come out. Pure.

A trigger that was decided before gives no facts, so it may be delivered any number of times. A decision never leaves
an execution without a next event: something is open, or the execution ends with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from noetl.errors import TemplateFailed
from noetl.plan.entering import Entering
from noetl.plan.fact import Fact
from noetl.plan.leaving import leave
from noetl.plan.planned import Plan
from noetl.plan.state import State, evolve
from noetl.plan.trigger import Cancelled, CommandEnded, Doubt, Start, Trigger


class Decision(msgspec.Struct, frozen=True):
    """The facts and the state after them."""

    facts: tuple[Fact, ...]
    state: State


def decide(
    plan: Plan, state: State, trigger: Trigger, mint: Callable[[], int], loaded: Mapping[str, Any] | None = None
) -> Decision:
    """Decide what follows from a trigger.

    `mint` gives ids for loops, stages and child executions. `loaded` holds the data of results that are too large for
    the ledger, for the steps `needed` names.
    """
    deciding = Deciding(plan, state, mint, loaded or {})
    if not state.ended:
        deciding.take(trigger)
    return Decision(tuple(deciding.facts), deciding.state)


def needed(plan: Plan, state: State, trigger: Trigger) -> frozenset[str]:
    """Name the steps whose data, kept outside the ledger, the templates of this decision may look at."""
    steps = {arrival.step for arrival in state.waiting}
    names: set[str] = set()
    if isinstance(trigger, CommandEnded):
        found = state.run_of(trigger.command_id)
        if found is None:
            return frozenset()
        names |= plan.step(found[0]).reads_on_exit
        steps.update(plan.graph.targets[found[0]])
        if "output" in names:
            names.add(found[0])
    elif isinstance(trigger, Start):
        steps.add(trigger.from_step or plan.playbook.entry)
    if plan.playbook.final is not None:
        steps.add(plan.playbook.final)
    for step in steps:
        names |= plan.step(step).reads_on_entry
    return frozenset(names & plan.steps.keys())


class Deciding:
    """One decision under way."""

    def __init__(self, plan: Plan, state: State, mint: Callable[[], int], loaded: Mapping[str, Any]) -> None:
        self.plan = plan
        self.state = state
        self.mint = mint
        self.loaded = loaded
        self.facts: list[Fact] = []

    def say(self, fact: Fact) -> None:
        """Add a fact and go on from the state it leads to."""
        self.facts.append(fact)
        if fact.at == "execution":
            self.state = evolve(self.state, fact)

    def take(self, trigger: Trigger) -> None:
        """Decide on one trigger."""
        if isinstance(trigger, Start):
            self._start(trigger)
        elif isinstance(trigger, CommandEnded):
            self._command_ended(trigger)
        elif isinstance(trigger, Cancelled):
            self.say(
                Fact(
                    event_type="execution.cancelled",
                    error=trigger.reason,
                    meta={"by": trigger.by, "swallowed_total": self.state.swallowed},
                )
            )
        elif isinstance(trigger, Doubt):
            self._settle()

    def _start(self, trigger: Start) -> None:
        if self.state.status != "NEW":
            return
        meta = {
            "path": trigger.path,
            "version": trigger.version,
            "playbook_digest": trigger.digest,
            "requested_by": trigger.requested_by,
            "parent_command_id": trigger.parent_command_id,
            "rerun_of": None if trigger.rerun_of is None else str(trigger.rerun_of),
            "from_step": trigger.from_step,
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
        error = trigger.error or {}
        meta: dict[str, Any] = {"attempt": trigger.attempt, "duration_ms": trigger.duration_ms}
        if trigger.swallowed:
            meta["swallowed"] = trigger.swallowed
        if trigger.tries:
            meta["tries"] = trigger.tries
        if trigger.accumulate is not None:
            meta["accumulate"] = trigger.accumulate
        result: dict[str, Any] = {"status": trigger.status}
        if trigger.data is not None and trigger.ref is None:
            result["data"] = trigger.data
        if trigger.selected:
            result["selected"] = trigger.selected
        if error:
            result["error"] = error
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
                context={"set": trigger.ctx_writes} if trigger.ctx_writes else {},
                result=result,
                error=error.get("message") or "failed" if failed else None,
                payload_ref=trigger.ref,
                key=f"{trigger.command_id}/ended/{trigger.attempt}",
            )
        )
        if not self.state.active[step].open:
            leave(self, step, trigger)
            self._settle()

    def _enter(self, step: str, cause: dict[str, Any], *, final: bool = False) -> None:
        Entering(self, step, cause, final=final).enter()

    def _settle(self) -> None:
        """Enter whatever may begin now; when nothing is open any more, end."""
        while not self.state.ended:
            if self.state.failure is not None and not self.state.final_entered:
                self._stop_the_others()
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
            self._end()

    def _next_arrival(self) -> Any:
        """Find the first step that was arrived at and that nothing under way can lead to any more."""
        state, graph = self.state, self.plan.graph
        for arrival in state.waiting:
            goal = arrival.step
            if goal in state.active:
                continue
            if not graph.is_reduce(goal):
                return arrival
            others = {other.step for other in state.waiting if other.step != goal}
            # Steps that wait for each other would wait for ever: of such a ring the first that was arrived at begins.
            blocked = any(graph.reaches(step, goal) for step in state.active) or any(
                graph.reaches(other, goal) and not graph.reaches(goal, other) for other in others
            )
            if not blocked:
                return arrival
        return None

    def _stop_the_others(self) -> None:
        """A step failed for good: what else is under way is stopped, so that the execution can end."""
        reason = f"stopped, because step {self.state.failed_step} failed"
        for step, run in list(self.state.active.items()):
            for command_id in run.open:
                self.say(
                    Fact(
                        event_type="command.failed",
                        node_name=step,
                        command_id=command_id,
                        stage_id=run.stage_id,
                        loop_id=run.loop_id,
                        status="cancelled",
                        error=reason,
                        result={"status": "error"},
                        key=f"{command_id}/stopped",
                    )
                )
            if run.stage_id is not None:
                self.say(
                    Fact(
                        event_type="stage.closed",
                        at="stage",
                        node_name=step,
                        stage_id=run.stage_id,
                        loop_id=run.loop_id,
                        status="cancelled",
                        error=reason,
                    )
                )
            self.say(
                Fact(
                    event_type="step.exited",
                    node_name=step,
                    status="cancelled",
                    meta={"run": run.number},
                    error=reason,
                )
            )

    def _end(self) -> None:
        state = self.state
        meta: dict[str, Any] = {"swallowed": state.swallowed}
        if state.failure is not None:
            self.say(
                Fact(
                    event_type="playbook.failed",
                    node_name=state.failed_step,
                    status="failed",
                    error=state.failure,
                    meta=meta,
                )
            )
            return
        result: dict[str, Any] = {"status": "ok"}
        ref = None
        if state.result_step is not None:
            found = state.results[state.result_step]
            result |= {"step": state.result_step, "data": found.data}
            ref = found.ref
        self.say(Fact(event_type="playbook.completed", status="completed", meta=meta, result=result, payload_ref=ref))


def undecidable(state: State, problem: Exception) -> Fact:
    """Return the end of an execution that cannot be decided about, with its reason."""
    said = problem.message if isinstance(problem, TemplateFailed) else f"{type(problem).__name__}: {problem}"
    return Fact(
        event_type="execution.failed",
        status="failed",
        error=f"the execution cannot go on: {said}"[:8000],
        meta={"swallowed": state.swallowed},
    )
