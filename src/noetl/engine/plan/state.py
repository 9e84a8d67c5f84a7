"""An execution's state as its own events tell it: events go in, in order, and the state a decision needs comes out.

Values are never changed in place: every event gives a new state, so a decision can be thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from noetl.engine.plan.fact import Fact
from noetl.engine.plan.locality import Place, told_place
from noetl.language.playbook.model import Accumulate
from noetl.language.playbook.selection import accumulate
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.dispatch import by_type
from noetl.model.catalogue.rows import types_steering
from noetl.model.event import Event
from noetl.model.payload_ref import FRAMES, PayloadRef

_replace = msgspec.structs.replace


Said = Event | Fact
"""What the fold reads: an event of the ledger, or a fact that is about to become one."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a step came to last."""

    status: str = "ok"
    data: Any = None
    ref: PayloadRef | None = None
    selected: dict[str, Any] = {}
    accumulated: Any = None
    tasks: dict[str, Any] = {}
    """Of a list of tasks whose results are read one by one: what each came to but for the one whose result is the step's."""
    last_task: str | None = None
    """That one."""

    @property
    def outside(self) -> PayloadRef | None:
        """Where the data are, or of a loop what its rows came to, if that does not stand in the events."""
        is_whole = self.data is not None and self.ref is not None and self.ref.media_type != FRAMES
        return None if is_whole else self.ref


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One activation of a step that has not ended."""

    number: int
    open: tuple[str, ...] = ()
    """Commands that have not ended."""
    failed: str | None = None
    loop: dict[str, Any] | None = None
    """For a loop: its mode, how many rows it has and its frames' policy."""
    loop_id: int | None = None
    stage_id: int | None = None
    rows_ref: PayloadRef | None = None
    ended: Result | None = None
    """What its last command came to."""


class Arrival(msgspec.Struct, frozen=True):
    """An arc that fired into a step that may not have begun yet."""

    step: str
    source: str | None
    arc: int | None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision about an execution may look at."""

    execution_id: int
    version: int = 0
    catalog_id: str = ""
    path: str = ""
    digest: str = ""
    parent_execution_id: int | None = None
    parent_command_id: str | None = None
    depth: int = 0
    """How many executions are above it."""
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    results: dict[str, Result] = {}
    near: dict[str, tuple[Place, int]] = {}
    """Which node holds most of a step's result, where that is outside its events, and how many bytes of it."""
    active: dict[str, Run] = {}
    runs: dict[str, int] = {}
    """How often each step was entered."""
    without_work: int = 0
    """Steps entered since a worker was last given something to do."""
    waiting: tuple[Arrival, ...] = ()
    failure: str | None = None
    failed_step: str | None = None
    final_entered: bool = False
    result_step: str | None = None
    swallowed: int = 0
    status: str = "NEW"
    ended_with: str | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen."""
        return self.ended_with is not None

    def run_of(self, command_id: str) -> tuple[str, Run] | None:
        """Find the activation an open command belongs to."""
        step = command_id.rsplit("/", 2)[0]
        run = self.active.get(step)
        return (step, run) if run is not None and command_id in run.open else None


def evolve(state: State, said: Said) -> State:
    """Return the state after one event of the execution's own stream."""
    if state.ended:
        return _replace(state, version=state.version + 1)
    changes = _CHANGES[said.event_type]
    if changes is None:
        return _replace(state, version=state.version + 1)
    return _replace(state, version=state.version + 1, **changes(state, said))


Changes = dict[str, Any]
"""The fields of the state that an event changes."""


def _requested(_state: State, said: Said) -> Changes:
    meta = said.meta
    return {
        "status": "RUNNING",
        "catalog_id": said.catalog_id or "",
        "path": meta.get("path", ""),
        "digest": meta.get("playbook_digest", ""),
        "parent_execution_id": said.parent_execution_id,
        "parent_command_id": meta.get("parent_command_id"),
        "depth": meta.get("depth", 0),
    }


def _ended(state: State, said: Said) -> Changes:
    return {
        "status": said.event_type.rpartition(".")[2].upper(),
        "ended_with": said.event_type,
        "error": said.error,
        "failed_step": state.failed_step or said.node_name,
        "active": {},
    }


def _initialized(_state: State, said: Said) -> Changes:
    carried = {name: msgspec.convert(kept, Result) for name, kept in (said.context.get("results") or {}).items()}
    return {"workload": said.context.get("workload", {}), "ctx": said.context.get("ctx", {}), "results": carried}


def _entered(state: State, said: Said) -> Changes:
    step, meta = said.node_name or "", said.meta
    run = Run(
        number=meta["run"],
        loop=meta.get("loop"),
        loop_id=said.loop_id,
        stage_id=said.stage_id,
        rows_ref=said.payload_ref,
    )
    return dict(
        active={**state.active, step: run},
        final_entered=state.final_entered or bool(meta.get("final")),
        **_begun(state, step, meta["run"]),
    )


def _skipped(state: State, said: Said) -> Changes:
    return _begun(state, said.node_name or "", said.meta["run"])


def _begun(state: State, step: str, run: int) -> Changes:
    waiting = tuple([arrival for arrival in state.waiting if arrival.step != step])
    return {"runs": {**state.runs, step: run}, "waiting": waiting, "without_work": state.without_work + 1}


def _issued(state: State, said: Said) -> Changes:
    step = said.node_name or ""
    run = state.active[step]
    return {
        "active": {**state.active, step: _replace(run, open=(*run.open, said.command_id or ""))},
        "without_work": state.without_work if said.meta.get("idle") else 0,
    }


def _command_ended(state: State, said: Said) -> Changes:
    found = state.run_of(said.command_id or "")
    if found is None:
        return {}
    step, run = found
    left = tuple(command for command in run.open if command != said.command_id)
    result = said.result
    run = _replace(
        run,
        open=left,
        failed=run.failed if said.event_type == "command.completed" else said.error or "failed",
        ended=Result(
            status=result.get("status", "ok"),
            data=result.get("data"),
            ref=said.payload_ref,
            selected=result.get("selected", {}),
            accumulated=_gathered(state.results.get(step), said),
            tasks=result.get("tasks", {}),
            last_task=result.get("last_task"),
        ),
    )
    return {
        "active": {**state.active, step: run},
        "ctx": written(state.ctx, said.context.get("set")),
        "swallowed": state.swallowed + said.meta.get("swallowed", 0),
    }


def _gathered(before: Result | None, said: Said) -> Any:
    rule = said.meta.get("accumulate")
    if rule is None or said.event_type != "command.completed":
        return None if before is None else before.accumulated
    return gathered(before, said.result.get("data"), rule)


def gathered(before: Result | None, data: Any, rule: Mapping[str, Any]) -> Any:
    """Return what a step's runs have gathered with one more result; TemplateFailed if it does not fit."""
    return accumulate(None if before is None else before.accumulated, data, msgspec.convert(rule, Accumulate))


def _exited(state: State, said: Said) -> Changes:
    step, meta = said.node_name or "", said.meta
    run = state.active.get(step)
    active = {name: other for name, other in state.active.items() if name != step}
    # What a step came to before it was stopped is what it came to.
    result = run.ended if run is not None and said.status != "cancelled" else None
    if said.result:
        result = Result(
            status=said.result.get("status", "ok"),
            data=said.result.get("data"),
            ref=said.payload_ref,
            selected=said.result.get("selected", {}),
        )
    arrivals = tuple(Arrival(target, step, arc) for arc, target in meta.get("taken", ()))
    fails = bool(meta.get("fails"))
    speaks = result is not None and said.status == "completed" and (result.data is not None or result.ref is not None)
    return {
        "active": active,
        "results": state.results if result is None else {**state.results, step: result},
        "near": _nearer(state.near, step, meta.get("near")),
        "ctx": written(state.ctx, said.context.get("set")),
        # After a failure nothing begins any more that was arrived at before.
        "waiting": () if fails else (*state.waiting, *arrivals),
        "failure": (state.failure or said.error) if fails else state.failure,
        "failed_step": (state.failed_step or step) if fails else state.failed_step,
        # A closing step that says nothing must not hide the real result.
        "result_step": step if speaks else state.result_step,
        "swallowed": state.swallowed + meta.get("swallowed", 0),
    }


def _nearer(near: dict[str, tuple[Place, int]], step: str, said: Any) -> dict[str, tuple[Place, int]]:
    place = told_place(said)
    if place is not None:
        return {**near, step: (place, said.get("bytes") or 0)}
    return {name: kept for name, kept in near.items() if name != step} if step in near else near


_RULES: Final[dict[str, Callable[[State, Said], Changes]]] = {
    "execution.requested": _requested,
    **dict.fromkeys(ENDING, _ended),
    "playbook.initialized": _initialized,
    "step.entered": _entered,
    "step.skipped": _skipped,
    "command.issued": _issued,
    "command.completed": _command_ended,
    "command.failed": _command_ended,
    "step.exited": _exited,
}
_CHANGES: Final = by_type(_RULES, types_steering())


def net(writes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return writes by path, given in the order they were made, without those that a later write above them undid.

    What is left gives the same values in whatever order events keep it, as long as shorter paths come first.
    """
    kept: dict[str, Any] = {}
    for path, value in writes:
        kept = {name: old for name, old in kept.items() if not name.startswith(f"{path}.")}
        kept[path] = value
    return kept


def written(ctx: dict[str, Any], writes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the shared values after writes by dotted path, shorter paths first."""
    for path in sorted(writes or ()):
        ctx = _with(ctx, path.split("."), (writes or {})[path])
    return ctx


def _with(values: Any, path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    base = values if isinstance(values, dict) else {}
    return {**base, first: value if not rest else _with(base.get(first), rest, value)}
