"""How long executions may run and how deep they may start each other: counts go in, a limit or refusal comes out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.engine.plan.fact import Fact
from noetl.engine.plan.state import State
from noetl.errors import ChildTooDeep
from noetl.language.playbook.model import Limits

_AT: Final = "executor.spec.policy.limits"


class Reached(msgspec.Struct, frozen=True):
    """A limit that an execution has come to."""

    name: str
    most: float
    said: str
    """What there were so many of."""
    hint: str


def reached(limits: Limits, state: State) -> Reached | None:
    """Return the limit that keeps an execution from entering one more step."""
    if state.without_work >= limits.steps_without_work:
        most = limits.steps_without_work
        said = f"{most} steps in a row gave no worker anything to do"
        return Reached("steps_without_work", most, said, "let a condition end the ring")
    if sum(state.runs.values()) >= limits.steps:
        return Reached("steps", limits.steps, f"{limits.steps} steps were entered", "let a condition end the ring")
    if state.version >= limits.events:
        said = f"the execution has {state.version} events"
        return Reached("events", limits.events, said, "split the work into executions of their own")
    return None


def out_of_time(limits: Limits) -> Reached | None:
    """Return the limit of an execution whose time is over; None if its playbook sets none."""
    if limits.seconds is None:
        return None
    said = f"the execution had not ended {limits.seconds:g} seconds after its request"
    return Reached("seconds", limits.seconds, said, "let it do less")


def ended_by(limit: Reached, state: State, step: str | None) -> Fact:
    """Return the end of an execution at a limit; `step` is the one that is not entered any more."""
    under_way = ", ".join(state.active)
    where = f"before step {step}" if step else f"in {under_way}" if under_way else "between two steps"
    meta: dict[str, Any] = {"swallowed": state.swallowed, "limit": limit.name, "most": limit.most}
    return Fact(
        event_type="execution.failed",
        node_name=step,
        status="failed",
        error=f"the limit {limit.name} is reached {where}: {limit.said}; {limit.hint}, or raise {_AT}.{limit.name}"
        f" above {limit.most:.15g}",
        meta=meta,
    )


MAX_CHILD_DEPTH: Final = 50
"""Playbooks that mean to call each other come nowhere near; one that calls itself without end is stopped soon."""
DEPTH_LIMIT: Final = "depth_limit"
"""The kind of error a task has whose child would be too deep."""


def depth_below(parent_depth: int, most: int, path: str) -> int:
    """Return the depth of a child; ChildTooDeep if there are as many executions above it as there may be."""
    depth = parent_depth + 1
    if depth > most:
        raise ChildTooDeep(
            f"the playbook {path} is not started: it would be {depth} levels below the first execution, and"
            f" runtime.scheduler.max_child_depth is {most}",
            hint="let a condition end playbooks that call each other, or raise the setting",
        )
    return depth
