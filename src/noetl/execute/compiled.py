"""A step ready to be run often: the playbook's text goes in, compiled tasks come out, made once per playbook and step."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from noetl.errors import NotFound, PlaybookInvalid
from noetl.execute.policy import CompiledPolicy, compile_policy
from noetl.playbook.model import Playbook, Select, Task
from noetl.playbook.scopes import CompiledSet, compile_set
from noetl.playbook.templates import CompiledValue, compile_value

_SOURCE_TEXT = {"python": ("code", "script")}
"""Options that hold a program: braces in it are its own, so it is never rendered."""


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
    tasks: tuple[CompiledTask, ...]
    labels: dict[str, int]
    is_sequence: bool
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
    tasks = tuple(_compile_task(_from_workbook(task, playbook), where) for task in step.tasks)
    return CompiledStep(
        name=name,
        input=compile_value(step.input, f"{where}, field input") if step.input else None,
        tasks=tasks,
        labels={task.name: index for index, task in enumerate(tasks)},
        is_sequence=step.is_sequence,
        where=where,
    )


def _compile_task(task: Task, step_where: str) -> CompiledTask:
    where = f"{step_where}, task {task.name}"
    limit = task.timeout if task.timeout is not None or task.kind != "http" else task.options.get("timeout")
    return CompiledTask(
        name=task.name,
        kind=task.kind,
        options=_compile_options(task, where),
        input=compile_value(task.input, f"{where}, field input") if task.input else None,
        auth=compile_value(task.auth, f"{where}, field auth"),
        timeout=None if limit is None else compile_value(limit, f"{where}, field timeout"),
        policy=None if task.policy is None else compile_policy(task.policy, where),
        set=compile_set(task.set, where),
        select=() if task.output is None else task.output.select,
        source=task,
        where=where,
    )


def _compile_options(task: Task, where: str) -> CompiledValue:
    programs: dict[str, Any] = {
        key: task.options[key] for key in _SOURCE_TEXT.get(task.kind, ()) if isinstance(task.options.get(key), str)
    }
    if not programs:
        return compile_value(task.options, where)
    rest = compile_value({key: value for key, value in task.options.items() if key not in programs}, where)
    if rest.is_constant:
        options = task.options
        return CompiledValue(lambda _: options, is_constant=True)
    return CompiledValue(lambda names: {**rest.render(names), **programs}, is_constant=False)


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
        )
    return task
