"""Checks what templates read of results: a field that no result of the kind ever has is told, with those it has.

Such a template fails, or with `default` quietly comes to nothing, whatever the task did.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Problems, nearest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.checks.result_shapes import (
    OUTPUT,
    RESULTS,
    ResultShape,
    shape_of_step,
    shape_of_task,
    shape_of_tasks,
)
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.model import Step
from noetl.language.playbook.parse import Parsed
from noetl.language.playbook.template_uses import Path, line_of, place_in, uses_of
from noetl.language.templates.template import is_template

_METHODS = frozenset({"get", "items", "keys", "values"})
_AFTER = (("set",), ("next",))
"""Parts of a step that are rendered once its work has ended."""
_OF_OUTCOMES = frozenset({"set", "spec"})
"""Parts of a task that are rendered once it has ended."""
_Shapes = Mapping[str, ResultShape | None]


def check_results(parsed: Parsed, problems: Problems) -> None:
    """Note which fields are read that no result has."""
    _Results(parsed, problems).check()


class _Results:
    def __init__(self, parsed: Parsed, problems: Problems) -> None:
        self._playbook = parsed.playbook
        self._tree = parsed.tree
        self._problems = problems
        self._steps = {name: shape_of_step(step) for name, step in parsed.playbook.steps.items()}

    def check(self) -> None:
        for step, node in zip(self._playbook.steps.values(), self._tree.mapping["workflow"].items, strict=True):
            self._step(step, node)

    def _step(self, step: Step, node: Node) -> None:
        known = _without(self._steps, (step.loop.iterator,) if step.loop is not None else ())
        ended = {**known, "output": _output(_whole(step))}
        inside = _without(known, step.input)
        for key, part in node.mapping.items():
            if key == "tool":
                tasks = part.items or [part]
                for index, task in enumerate(tasks):
                    self._task(step, index, task, inside)
            elif (key,) in _AFTER:
                self._each(part, ended)
            elif key == "input":
                self._each(part, known)
            elif key in ("spec", "loop"):
                self._each(part, self._steps)

    def _task(self, step: Step, index: int, node: Node, known: _Shapes) -> None:
        task = step.tasks[index]
        beside = {**known, **_beside(step, index)}
        bound = _without(beside, task.input)
        ended = {**bound, "output": _output(shape_of_task(task)), "_prev": None}
        program = KINDS[task.kind].program if task.kind in KINDS else None
        for key, part in node.mapping.items():
            if key in _OF_OUTCOMES:
                self._each(part, ended)
            elif key != program:
                self._each(part, beside if key in ("input", "payload") else bound)

    def _each(self, node: Node, shapes: _Shapes) -> None:
        for text in node.texts():
            if is_template(text.value):
                with suppress(TemplateFailed):  # the check of names tells about it
                    for path in sorted(uses_of(str(text.value)).paths, key=str):
                        self._path(text, path, shapes)

    def _path(self, text: Node, path: Path, shapes: _Shapes) -> None:
        shape = shapes.get(str(path[0]))
        for depth, key in enumerate(path[1:], 1):
            if shape is None:
                return
            if not isinstance(key, str):
                self._tell(text, path[:depth], f"[{key}]", shape)
                return
            if not shape.has(key) and key not in _METHODS:
                self._tell(text, path[:depth], key, shape)
                return
            shape = shape.below(key)

    def _tell(self, text: Node, owner: Path, key: str, shape: ResultShape) -> None:
        above = ".".join(map(str, owner))
        read = f"{above}{key}" if key.startswith("[") else f"{above}.{key}"
        at = place_in(text, line_of(str(text.value), read))
        names = [name for name in shape.names() if not name.startswith("_")]
        has = f"it has {', '.join(names)}" if names else "it has no fields at all"
        close = nearest(key, names)
        said = f"{read} is never there: {shape.what} comes to a mapping without it"
        if shape is RESULTS["noop"] or not names:
            said = f"{read} is never there: {shape.what} comes to nothing"
        self._problems.warning("never_in_result", said, at, f"did you mean {close}? {has}" if close else has)


def _whole(step: Step) -> ResultShape | None:
    """Return the result that `output.data` of a step stands for."""
    return shape_of_tasks(step) if step.loop is None else shape_of_step(step)


def _output(data: ResultShape | None) -> ResultShape | None:
    """Return the shape of `output`, which reads the fields of the result too; None where that can be anything."""
    if data is None:
        return None
    return ResultShape(data.what, {**data.fields, **dict.fromkeys(OUTPUT), "data": data}, data.numbered)


def _beside(step: Step, index: int) -> dict[str, ResultShape | None]:
    """Return the names that a task of a list has of the others: theirs, `results` and `_prev`."""
    if not step.is_sequence:
        return {"results": None, "_prev": None}
    shapes = {task.name: shape_of_task(task) for task in step.tasks}
    found: dict[str, ResultShape | None] = dict(shapes)
    found["results"] = ResultShape("the list of tasks", shapes)
    before = [task for task in step.tasks[:index] if task.kind != "noop"]
    jumps = any(rule.then.do == "jump" for task in step.tasks if task.policy for rule in task.policy.rules)
    found["_prev"] = shape_of_task(before[-1]) if before and not jumps else None
    return found


def _without(shapes: _Shapes, names: Collection[str]) -> _Shapes:
    return {name: shape for name, shape in shapes.items() if name not in names}
