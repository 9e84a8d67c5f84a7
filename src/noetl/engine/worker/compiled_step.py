"""A step ready to be run often: its text goes in; compiled tasks, and which results to record, come out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from noetl.engine.worker.bindings import compile_input
from noetl.engine.worker.policy import CompiledPolicy, compile_policy
from noetl.errors import NotFound, PlaybookInvalid
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.model import Playbook, Select, Step, Task
from noetl.language.templates.origins import limit_origins, origins_at
from noetl.language.templates.scopes import Assignment, CompiledSet, compile_set
from noetl.language.templates.template import CompiledValue, compile_value, compiled, is_template


class CompiledTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task with everything that is rendered for a try."""

    name: str
    kind: str
    options: CompiledValue
    input: CompiledValue | None
    auth: CompiledValue
    timeout: CompiledValue | None
    policy: CompiledPolicy | None
    set: CompiledSet
    select: tuple[Select, ...]
    source: Task
    where: str


class CompiledStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step's tasks in order, and where each label is."""

    name: str
    input: CompiledValue | None
    timeout: CompiledValue | None
    claim: CompiledValue | None
    """What claims the rows of its loop, if it is one over a cursor: `claim`, `auth` and `options`."""
    tasks: tuple[CompiledTask, ...]
    labels: dict[str, int]
    is_sequence: bool
    sets_ctx: bool
    """Whether a task may set shared values."""
    most_idle: int
    """Tries in a row of tasks that do nothing, at most."""
    where: str


class CompiledSteps:
    """The steps compiled lately; those not asked for in a long time are dropped."""

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._steps: OrderedDict[tuple[str, str], CompiledStep] = OrderedDict()

    def get(self, playbook: Playbook, name: str) -> CompiledStep:
        """Return a step of a playbook, compiled."""
        key = (playbook.digest, name)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = compile_step(playbook, name)
            if len(self._steps) > self._limit:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        return step


def compile_step(playbook: Playbook, name: str) -> CompiledStep:
    """Return a step of a playbook, compiled; `TemplateFailed` says which field cannot be read."""
    step = playbook.steps.get(name)
    if step is None:
        raise NotFound(f"the playbook {playbook.path} has no step {name!r}")
    where = f"playbook {playbook.path}, step {name}"
    found = [_from_workbook(task, playbook) for task in step.tasks]
    tasks = tuple(_compile_task(task, where) for task in found)
    return CompiledStep(
        name=name,
        input=compile_input(
            step.input, f"{where}, field input", origins_at(step.origins, "input"), {task.kind for task in found}
        ),
        timeout=None
        if step.timeout is None
        else compile_value(step.timeout, f"{where}, field spec.timeout", limit_origins(step.origins)),
        claim=_compile_claim(step, where),
        tasks=tasks,
        labels={task.name: index for index, task in enumerate(tasks)},
        is_sequence=step.is_sequence,
        sets_ctx=any(assignment.scope == "ctx" for task in tasks for assignment in _assignments(task)),
        most_idle=playbook.limits.steps_without_work,
        where=where,
    )


def _compile_claim(step: Step, where: str) -> CompiledValue | None:
    cursor = step.loop and step.loop.cursor
    if not cursor:
        return None
    written = {"claim": cursor.claim, "auth": cursor.auth, "options": cursor.options}
    return compile_value(written, f"{where}, field loop.cursor", origins_at(step.origins, "loop", "cursor"))


def _assignments(task: CompiledTask) -> Iterator[Assignment]:
    yield from task.set
    for rule in () if task.policy is None else task.policy.rules:
        yield from rule.set


def _compile_task(task: Task, step_where: str) -> CompiledTask:
    where, origins = f"{step_where}, task {task.name}", task.origins
    limit = task.timeout if task.timeout is not None or task.kind != "http" else task.options.get("timeout")
    return CompiledTask(
        name=task.name,
        kind=task.kind,
        options=_compile_options(task, where),
        input=compile_input(task.input, f"{where}, field input", origins_at(origins, "input"), {task.kind}),
        auth=compile_value(task.auth, f"{where}, field auth", origins_at(origins, "auth")),
        timeout=None
        if limit is None
        else compile_value(limit, f"{where}, field timeout", origins_at(origins, "timeout")),
        policy=None if task.policy is None else compile_policy(task.policy, where),
        set=compile_set(task.set, where, origins_at(origins, "set")),
        select=() if task.output is None else task.output.select,
        source=task,
        where=where,
    )


def program_of(task: Task) -> str | None:
    """Return the option that holds a task's program, if its kind has one."""
    return KINDS[task.kind].program if task.kind in KINDS else None


def _compile_options(task: Task, where: str) -> CompiledValue:
    options, program = task.options, program_of(task)
    if program not in options:
        return compile_value(options, where, task.origins)
    # Braces in a program are its own, so it is never rendered.
    rest = compile_value({key: value for key, value in options.items() if key != program}, where, task.origins)
    if rest.is_constant:
        return CompiledValue(lambda _: options, is_constant=True)
    text = options[program]
    return CompiledValue(lambda names: {**rest.render(names), program: text}, is_constant=False)


def _from_workbook(task: Task, playbook: Playbook) -> Task:
    """Return the task that a task of kind `workbook` stands for: the caller's input over the workbook's own."""
    seen: set[str] = set()
    while task.kind == "workbook":
        name = str(task.options.get("name") or task.options.get("task") or task.name)
        named = playbook.workbook.get(name)
        if named is None:
            known = ", ".join(playbook.workbook) or "none"
            raise PlaybookInvalid(f"playbook {playbook.path}: the workbook has no task {name!r} (it has: {known})")
        if name in seen:
            raise PlaybookInvalid(f"playbook {playbook.path}: the workbook's task {name!r} leads back to itself")
        seen.add(name)
        task = msgspec.structs.replace(
            named,
            name=task.name,
            input={**named.input, **task.input},
            auth=named.auth if task.auth is None else task.auth,
            timeout=named.timeout if task.timeout is None else task.timeout,
            policy=named.policy or task.policy,
            output=task.output or named.output,
            set={**named.set, **task.set},
            place=task.place,
            origins=_together(named, task),
        )
    return task


def _together(named: Task, task: Task) -> Any:
    """Return the origins of a task of the workbook with those of the caller's input and `set` over its own."""
    found = {**(named.origins or {})}
    for key, part in (task.origins or {}).items():
        under = found.get(key)
        found[key] = {**under, **part} if isinstance(under, dict) and isinstance(part, dict) else part
    return found


_KNOWN_MOST = 10_000
_known: dict[str, frozenset[str]] = {}


def steps_read_by_task(playbook: Playbook) -> frozenset[str]:
    """Return the lists of tasks of a playbook whose tasks' results are read after the step."""
    if playbook.digest not in _known:
        if len(_known) > _KNOWN_MOST:
            _known.clear()
        _known[playbook.digest] = frozenset(_read(playbook))
    return _known[playbook.digest]


def _read(playbook: Playbook) -> Iterator[str]:
    listed = {name for name, step in playbook.steps.items() if step.is_sequence and step.loop is None}
    if not listed:
        return
    tasks = [*playbook.workbook.values(), *(task for step in playbook.steps.values() for task in step.tasks)]
    paths = {path for text in _texts(msgspec.to_builtins(playbook.steps)) for path in _paths(text)}
    paths |= {path for text in _texts(msgspec.to_builtins(playbook.workbook)) for path in _paths(text)}
    programs = [text for task in tasks if "results" in (text := _program(task))]
    for name in listed:
        in_templates = any(path[:2] == (name, "results") for path in paths)
        if in_templates or any(name in text for text in programs) or _asks_itself(playbook.steps[name]):
            yield name


def _asks_itself(step: Step) -> bool:
    leaving = [step.set, msgspec.to_builtins(step.router)]
    return any(path[:2] == ("output", "results") for text in _texts(leaving) for path in _paths(text))


def _program(task: Task) -> str:
    return str(task.options.get(program_of(task) or "", ""))


def _paths(text: str) -> frozenset[tuple[str | int, ...]]:
    return compiled(text).paths if is_template(text) else frozenset()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
