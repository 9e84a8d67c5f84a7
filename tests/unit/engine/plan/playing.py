"""Plays a playbook through its decisions without any I/O, and holds every decision to what all decisions promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from textwrap import dedent
from typing import Any

import msgspec

from noetl.engine.plan.decide import Decision, decide
from noetl.engine.plan.fact import Fact
from noetl.engine.plan.planned import Plan
from noetl.engine.plan.state import State, evolve
from noetl.engine.plan.trigger import CommandEnded, Doubt, Start, Tally, Trigger
from noetl.language.playbook.parse import parse
from noetl.model.canonical import exact_json

EXECUTION_ID = 604_876_797_720_658_689
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"


def plan_of(workflow: str, spec: str = "{}") -> Plan:
    """Read the steps of a workflow, each a line of flow style; a step without a tool has work of some kind."""
    lines = [f"  - {line}" for line in dedent(workflow).strip().splitlines()]
    text = f"{HEAD}executor: {{spec: {spec}}}\nworkflow:\n" + "\n".join(lines)
    text = "\n".join(
        line if "tool:" in line or not line.startswith("  - {") else _working(line) for line in text.splitlines()
    )
    return Plan(parse(text).playbook)


def _working(line: str) -> str:
    return line.rstrip().removesuffix("}") + ", tool: {kind: noop, input: {some: work}}}"


def minting() -> Callable[[], int]:
    """Return ids in the order they are asked for."""
    ids = count(1_000)
    return lambda: next(ids)


def start_of(plan: Plan, workload: Mapping[str, Any] = {}, **fields: Any) -> Start:
    given = {"path": "demo/it", "version": 1, "catalog_id": "c1", "digest": plan.playbook.digest}
    return Start(**{**given, "workload": dict(workload), "requested_by": "tests", "key": "requested", **fields})


def as_recorded(fact: Fact) -> Fact:
    """Return a fact as its event comes back from the ledger."""
    fields = {name: msgspec.json.decode(exact_json(getattr(fact, name))) for name in ("meta", "context", "result")}
    return msgspec.structs.replace(fact, **fields)


def folded(facts: list[Fact], execution_id: int = EXECUTION_ID) -> State:
    """Return the state that the recorded facts alone lead to."""
    state = State(execution_id=execution_id)
    for fact in facts:
        if fact.at == "execution":
            state = evolve(state, as_recorded(fact))
    return state


class Play:
    """One execution: triggers go in, what was said is kept."""

    def __init__(
        self,
        workflow: str | Plan,
        spec: str = "{}",
        workload: Mapping[str, Any] = {},
        loaded: Mapping[str, Any] = {},
        **start: Any,
    ) -> None:
        self.plan = workflow if isinstance(workflow, Plan) else plan_of(workflow, spec)
        self.state = State(execution_id=EXECUTION_ID)
        self.facts: list[Fact] = []
        self.last: tuple[Fact, ...] = ()
        self.loaded = loaded
        self._mint = minting()
        self.take(start_of(self.plan, workload, **start))

    def take(self, trigger: Trigger) -> tuple[Fact, ...]:
        """Decide on a trigger and go on from there."""
        decision = decide(self.plan, self.state, trigger, self._mint, self.loaded)
        self.state, self.last = decision.state, decision.facts
        self.facts += decision.facts
        self.hold(decision, trigger)
        return decision.facts

    def hold(self, decision: Decision, trigger: Trigger) -> None:
        assert repr(folded(self.facts)) == repr(decision.state), "the recorded events alone lead to another state"
        again = decide(self.plan, decision.state, trigger, self._mint, self.loaded)
        assert again.facts == (), "a trigger that comes again says something new"
        assert self.state.ended or self.open, "nothing is open, and the execution has not ended"
        assert self.state.ended or all(run.open for run in self.state.active.values())

    @property
    def open(self) -> list[str]:
        """The commands that have not ended."""
        return [command for run in self.state.active.values() for command in run.open]

    @property
    def active(self) -> set[str]:
        return set(self.state.active)

    def said(self, kind: str, step: str | None = None) -> list[Fact]:
        """Return everything said of a kind, of one step or of all."""
        return [fact for fact in self.facts if fact.event_type == kind and step in (None, fact.node_name)]

    def entered(self) -> list[str]:
        return [fact.node_name or "" for fact in self.said("step.entered")]

    def exit(self, step: str) -> Fact:
        return self.said("step.exited", step)[-1]

    def end(self, step: str, **report: Any) -> tuple[Fact, ...]:
        """End the first open command of a step."""
        command_id = self.state.active[step].open[0]
        return self.take(CommandEnded(**{"command_id": command_id, "attempt": 1, "status": "ok", **report}))

    def ok(self, *steps: str, **report: Any) -> Play:
        for step in steps:
            self.end(step, **report)
        return self

    def fail(self, step: str, message: str = "boom", **report: Any) -> Play:
        self.end(step, status="error", error={"kind": "unknown", "message": message, "retryable": False}, **report)
        return self

    def rows(self, step: str, **tally: Any) -> Play:
        """End all slots of a loop well, with what came of its rows."""
        for _ in self.state.active[step].open[1:]:
            self.end(step)
        self.end(step, tally=Tally(**tally))
        return self

    def doubt(self) -> tuple[Fact, ...]:
        return self.take(Doubt())

    @property
    def ending(self) -> Fact:
        """The last thing said, which ended the execution."""
        assert self.state.ended, f"still under way: {self.open}"
        return self.facts[-1]

    @property
    def end_kind(self) -> str:
        return self.ending.event_type
