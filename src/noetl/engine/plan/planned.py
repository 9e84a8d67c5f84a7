"""A playbook made ready for deciding: its graph, and the templates the planner renders, compiled once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from noetl.engine.plan.graph import Graph
from noetl.engine.plan.workload import Workload
from noetl.language.playbook.model import Arc, Loop, Playbook, Step
from noetl.language.templates.origins import limit_origins, origins_at
from noetl.language.templates.result_view import ENVELOPE
from noetl.language.templates.scopes import CompiledSet, compile_set
from noetl.language.templates.template import CompiledValue, compile_value, compiled, is_template, names_in


class PlannedArc(msgspec.Struct, frozen=True, kw_only=True):
    """An arc with its condition and its writes ready to be rendered."""

    step: str
    when: CompiledValue | None
    set: CompiledSet
    takes_errors: bool
    """Its condition looks at how the step ended, beyond its data, so it may be what an error is handled by."""
    where: str


class FrameDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation gives loops that do not say it themselves."""

    most_rows: int | None = None
    """Rows in a frame, at most; None leaves it to the planner."""
    max_seconds: float = 30.0
    max_bytes: int = 67_108_864
    max_in_flight: int = 1


class LoopDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults of loops, by what kind of stage they open."""

    loop: FrameDefaults = FrameDefaults()
    fanout: FrameDefaults = FrameDefaults(max_in_flight=8)


USUAL: Final = LoopDefaults()


class PlannedLoop(msgspec.Struct, frozen=True, kw_only=True):
    """A loop with its values ready to be rendered."""

    source: Loop
    collection: CompiledValue
    max_in_flight: CompiledValue
    frame: CompiledValue
    most_rows: int | None
    """Rows in a frame, at most, where the playbook names no size."""
    on_spark: bool
    """Its frames run inside Spark's executors: one command brings them there."""


class Reads(msgspec.Struct, frozen=True):
    """The names whose data templates look at, beyond the reference to them."""

    data: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    """Of these, the ones of which they look at more than a loop's counts, so that its rows' results are needed."""

    def __or__(self, other: Reads) -> Reads:
        return Reads(self.data | other.data, self.rows | other.rows)


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step as the planner sees it."""

    source: Step
    admit: tuple[tuple[CompiledValue | None, CompiledValue], ...]
    loop: PlannedLoop | None
    set: CompiledSet
    arcs: tuple[PlannedArc, ...]
    child: CompiledValue | None
    """For a step that is one sub-playbook: its path, version and input."""
    is_idle: bool
    """Its tool does nothing and nothing hangs on it, so that deciding about it is all the work there is."""
    is_work: bool
    """A worker is given more to do than nothing: some other task than `noop`, or the rows of a loop."""
    timeout: CompiledValue | None
    names_on_entry: frozenset[str]
    names_on_exit: frozenset[str]
    """What the templates ask for at the top: nothing else need be made ready for them."""
    reads_on_entry: Reads
    reads_on_exit: Reads
    """Of these, the steps whose data they look at."""
    where: str

    @property
    def may_end_at_once(self) -> bool:
        """Whether it may be left in the decision that entered it: there may be nothing to do, or its templates fail."""
        return bool(self.loop or self.child or self.admit or self.is_idle)

    @property
    def tool_kind(self) -> str:
        """What kind of work its command is, for people and for choosing workers."""
        return "sequence" if self.source.is_sequence else self.source.tasks[0].kind


class Plan:
    """One playbook, ready."""

    def __init__(self, playbook: Playbook, defaults: LoopDefaults = USUAL) -> None:
        self.playbook = playbook
        self.workload = Workload(playbook)
        self.graph = Graph(playbook.steps, playbook.entry)
        self.steps = {name: _planned(playbook, step, defaults) for name, step in playbook.steps.items()}

    def step(self, name: str) -> PlannedStep:
        """Return a step by name."""
        return self.steps[name]

    def reads_from(self, steps: Iterable[str]) -> Reads:
        """Return the names whose data may be looked at when steps are entered, and by what follows at once."""
        read = Reads()
        left = list(steps)
        seen = set(left)
        while left:
            step = self.steps[left.pop()]
            read |= step.reads_on_entry
            if not step.may_end_at_once:
                continue
            read |= step.reads_on_exit
            further = set(self.graph.targets[step.source.name]) - seen
            seen |= further
            left += further
        return read


def _planned(playbook: Playbook, step: Step, defaults: LoopDefaults) -> PlannedStep:
    where = f"{playbook.path}, step {step.name}"
    arcs = step.router.arcs if step.router else ()
    only = step.tasks[0]
    # What the task itself does with its outcome, and its time limit, take a worker, so then it cannot be suspended.
    is_plain = (
        only.policy is None and only.output is None and not only.set and step.timeout is None and only.timeout is None
    )
    is_alone = step.loop is None and len(step.tasks) == 1 and is_plain
    is_child = is_alone and only.kind == "playbook"
    is_idle = is_alone and only.kind == "noop" and not (step.input or only.input or only.options)
    child = {"options": only.options, "input": {**step.input, **only.input}} if is_child else None
    entry: list[Any] = [[rule.when, rule.allow] for rule in step.admit]
    entry += [step.loop.collection, step.loop.max_in_flight, msgspec.to_builtins(step.loop.frame)] if step.loop else []
    entry.append(child)
    leaving: list[Any] = [step.set, *([arc.when, arc.set] for arc in arcs)]
    return PlannedStep(
        source=step,
        admit=tuple(_admission(step, number, f"{where}, field spec.policy.admit") for number in range(len(step.admit))),
        loop=None if step.loop is None else _loop(step, step.loop, playbook, defaults, where),
        set=compile_set(step.set, where, origins_at(step.origins, "set")),
        arcs=tuple(_arc(arc, f"{where}, arc {number} to {arc.step}") for number, arc in enumerate(arcs)),
        child=None if child is None else compile_value(child, f"{where}, tool playbook", _child_origins(step)),
        is_idle=is_idle,
        is_work=step.loop is not None or any(task.kind != "noop" for task in step.tasks),
        timeout=None
        if step.timeout is None
        else compile_value(step.timeout, f"{where}, field spec.timeout", limit_origins(step.origins)),
        names_on_entry=names_in(entry),
        names_on_exit=names_in(leaving),
        reads_on_entry=reads_of(entry),
        reads_on_exit=reads_of(leaving),
        where=where,
    )


def _admission(step: Step, number: int, where: str) -> tuple[CompiledValue | None, CompiledValue]:
    rule, origins = step.admit[number], origins_at(step.origins, "spec", "policy", "admit", "rules", number)
    if rule.when is None:
        return None, compile_value(rule.allow, where, origins_at(origins, "else", "then", "allow"), reading="condition")
    when = compile_value(rule.when, where, origins_at(origins, "when"), reading="condition")
    return when, compile_value(rule.allow, where, origins_at(origins, "then", "allow"), reading="condition")


def _child_origins(step: Step) -> dict[str, Any]:
    own = step.tasks[0].origins
    given = {**(origins_at(step.origins, "input") or {}), **(origins_at(own, "input") or {})}
    return {"options": own, "input": given}


def _arc(arc: Arc, where: str) -> PlannedArc:
    return PlannedArc(
        step=arc.step,
        when=None
        if arc.when is None
        else compile_value(arc.when, f"{where}, field when", origins_at(arc.origins, "when"), reading="condition"),
        set=compile_set(arc.set, where, origins_at(arc.origins, "set")),
        takes_errors=is_template(arc.when) and any(map(_is_about_outcome, compiled(arc.when).paths)),
        where=where,
    )


def _is_about_outcome(path: tuple[str | int, ...]) -> bool:
    return path[0] == "event" or (path[0] == "output" and len(path) > 1 and path[1] in ENVELOPE - {"data"})


def _loop(step: Step, loop: Loop, playbook: Playbook, defaults: LoopDefaults, where: str) -> PlannedLoop:
    origins = origins_at(step.origins, "loop")
    own = defaults.fanout if loop.mode == "fanout" else defaults.loop
    lanes = own.max_in_flight if loop.max_in_flight is None else loop.max_in_flight
    given = {name: value for name, value in msgspec.to_builtins(loop.frame).items() if value is not None}
    frame = {"max_seconds": own.max_seconds, "max_bytes": own.max_bytes, **given}
    return PlannedLoop(
        source=loop,
        collection=compile_value(loop.collection, f"{where}, field loop.in", origins_at(origins, "in")),
        max_in_flight=compile_value(
            lanes, f"{where}, field loop.spec.max_in_flight", origins_at(origins, "spec", "max_in_flight")
        ),
        frame=compile_value(frame, f"{where}, field loop.spec.frame", origins_at(origins, "spec", "frame")),
        most_rows=own.most_rows,
        on_spark=loop.exec == "spark" or (loop.exec is None and playbook.executor.get("runtime") == "spark"),
    )


_WITHOUT_DATA = frozenset({"_ref", "_store", "status"})
_WITHOUT_ROWS = _WITHOUT_DATA | {"total", "completed", "failed", "frames", "stats"}


def reads_of(value: Any) -> Reads:
    """Return the names whose data the templates of a value look at."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        found = list(map(reads_of, value))
        return Reads(
            frozenset().union(*(read.data for read in found)), frozenset().union(*(read.rows for read in found))
        )
    if not is_template(value):
        return Reads()
    paths = compiled(value).paths
    return Reads(
        frozenset(str(path[0]) for path in paths if len(path) == 1 or path[1] not in _WITHOUT_DATA),
        frozenset(str(path[0]) for path in paths if _may_show_rows(path)),
    )


def _may_show_rows(path: tuple[str | int, ...]) -> bool:
    """Tell whether a path may lead to what a loop's rows came to, should its name be that of a loop."""
    name, *rest = path
    if rest[:1] in (["data"], ["result"]):
        rest = rest[1:]
    elif name == "output" and rest and rest[0] in ENVELOPE:
        return False
    return not rest or rest[0] not in _WITHOUT_ROWS
