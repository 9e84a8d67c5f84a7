"""Checks the names in templates: those nobody gives, secrets nobody declared, and values nobody sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Problems, nearest, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.model import Step, Task
from noetl.language.playbook.parse import Parsed
from noetl.language.playbook.parts import uncalled_in
from noetl.language.playbook.template_uses import (
    OF_WORKLOAD,
    SCOPES,
    Path,
    Uses,
    check_filters,
    instead_of,
    line_of,
    may_be_given,
    place_in,
    uses_of,
)
from noetl.language.templates.template import is_template

_DECIDED = (("set",), ("next",), ("spec", "policy", "admit"), ("loop", "in"), ("loop", "spec"))
"""Parts of a step that are rendered when something is decided, whose values are recorded: no secret is known there."""
_PRIVATE = ("iter.", "step.")
_FIRST = SCOPES - {"job", "fanin", "__frame_max_rows"}
"""Those that come before whatever else has the same name."""
_OF_LOOPS = frozenset({"loop", "frame"})
"""Those that only a step with a loop has."""


def check_names(parsed: Parsed, problems: Problems) -> None:
    """Note what is wrong with the names in templates."""
    _Names(parsed, problems).check()


class _Names:
    def __init__(self, parsed: Parsed, problems: Problems) -> None:
        self._playbook = parsed.playbook
        self._problems = problems
        self._tree = parsed.tree
        written = [key for step in parsed.playbook.steps.values() for key in _written(step)]
        written += [key for task in parsed.playbook.workbook.values() for key in _written_by(task)]
        self._ctx = {key.removeprefix("ctx.").split(".")[0] for key in written if not key.startswith(_PRIVATE)}
        bare = {key for key in written if "." not in key}
        self._everywhere = (SCOPES - _OF_LOOPS) | self._playbook.workload.keys() | self._playbook.steps.keys() | bare
        self._keychain = {entry.name for entry in self._playbook.keychain}
        self._inner = _inner_names(parsed)
        self._runs = True
        """Whether somebody runs what is being looked at."""

    def check(self) -> None:
        tree = self._tree
        self._each(tree.get("workload"), OF_WORKLOAD | self._playbook.workload.keys() | {"keychain"}, early=True)
        for entry in [] if (keychain := tree.get("keychain")) is None else keychain.items:
            self._each(entry, self._everywhere)
        local = {name: _local(step) for name, step in self._playbook.steps.items()}
        for (name, step), node in zip(self._playbook.steps.items(), tree.mapping["workflow"].items, strict=True):
            self._shadowed(step, node)
            self._step(step, node, self._everywhere | local[name] | (_OF_LOOPS if step.loop else set()))
        # A task of the workbook runs in the steps that use it, with their names.
        shared = self._everywhere.union(_OF_LOOPS, *local.values())
        uncalled = uncalled_in(tree)
        for entry in [] if (workbook := tree.get("workbook")) is None else workbook.items:
            name = str(entry.mapping["name"].value)
            self._runs = name not in uncalled
            self._task(self._playbook.workbook[name], entry.mapping["tool"], shared)
        self._runs = True

    def _step(self, step: Step, node: Node, known: Iterable[str]) -> None:
        for key, part in node.mapping.items():
            if key != "tool":
                self._each(part, known)
        for path in _DECIDED:
            self._unsealed(node.get(*path), path)
        tool = node.mapping["tool"]
        for task, part in zip(step.tasks, tool.items or [tool], strict=True):
            self._task(task, part, known)

    def _unsealed(self, node: Node | None, path: tuple[str, ...]) -> None:
        """Refuse secrets where values are recorded as they are."""
        for text in () if node is None else _reading(node, "keychain"):
            said = f"keychain cannot be read in {'.'.join(path)} of a step, whose values are recorded"
            hint = "read it in a task, and set or ask for what came of it"
            at = place_in(text, line_of(str(text.value), "keychain"))
            self._problems.error("secret_recorded", said, at, hint)

    def _task(self, task: Task, node: Node, known: Iterable[str]) -> None:
        program = KINDS[task.kind].program if task.kind in KINDS else None
        for key, part in node.mapping.items():
            if key != program:
                self._each(part, {*known, *task.input})
        self._recorded(task, node)
        name = task.options.get("name")
        if task.kind == "workbook" and name not in self._playbook.workbook:
            at = (node.get("task") or node.mapping["name"]).place
            hint = suggest(str(name), self._playbook.workbook) or "the playbook has no workbook"
            self._problems.error("unknown_workbook_task", f"there is no task {name} in the workbook", at, hint)

    def _recorded(self, task: Task, node: Node) -> None:
        """Warn of secrets in what a task has recorded: they are taken out, and a child with one is refused."""
        rules = node.get("spec", "policy", "rules")
        sets = [node.get("set")]
        for rule in [] if rules is None else rules.items:
            sets += [rule.get("then", "set"), rule.get("else", "then", "set")]
        kept = [value for part in sets if part for key, value in part.mapping.items() if not key.startswith(_PRIVATE)]
        given = [node.get("input"), node.get("payload")] if _runs_a_playbook(task) else []
        for part in (*kept, *filter(None, given)):
            for text in _reading(part, "keychain"):
                said = "this is recorded, and secrets never are: they stand there as ***"
                hint = "let whoever needs the secret read keychain itself"
                at = place_in(text, line_of(str(text.value), "keychain"))
                self._problems.warning("secret_recorded", said, at, hint)

    def _each(self, node: Node | None, known: Iterable[str], *, early: bool = False) -> None:
        """Look at every template in a node; `early` ones are rendered before the first step."""
        for text in () if node is None else node.texts():
            if not is_template(text.value):
                continue
            try:
                uses = uses_of(str(text.value))
            except TemplateFailed as error:
                line = error.details.get("line")
                at = place_in(text, line if isinstance(line, int) else 1)
                self._problems.error("template_invalid", f"this template cannot be read: {error.message}", at)
                continue
            self._top(text, uses, frozenset(known), early=early)
            check_filters(text, uses, self._problems)
            for path in sorted(uses.paths, key=str):
                self._below(text, path, uses)

    def _top(self, text: Node, uses: Uses, known: frozenset[str], *, early: bool) -> None:
        for name in sorted({str(path[0]) for path in uses.paths} - known):
            at = place_in(text, line_of(str(text.value), name))
            if early and name in self._everywhere | _OF_LOOPS:
                said = f"{name} is not known in workload, which is rendered before the first step"
                hint = f"there are the other keys of workload, {', '.join(sorted(OF_WORKLOAD - {'workload'}))}"
                self._problems.error("not_known_yet", said, at, hint)
                continue
            hint = "only a step with a loop has it" if name in _OF_LOOPS else instead_of(name, known)
            is_free = not early and name not in self._inner | _OF_LOOPS
            may_be_there = not self._runs or (is_free and may_be_given(name, known, str(text.value)))
            if may_be_there or uses.is_guarded((name,)):
                self._problems.warning("undefined_name", f"nothing is called {name}", at, hint)
            else:
                self._problems.error("undefined_name", f"nothing is called {name}", at, hint)

    def _below(self, text: Node, path: Path, uses: Uses) -> None:
        if len(path) < 2 or not isinstance(path[1], str):
            return
        scope, name = str(path[0]), path[1]
        at = place_in(text, line_of(str(text.value), f"{scope}.{name}"))
        if scope == "keychain" and name not in self._keychain:
            hint = suggest(name, self._keychain) or "declare it under keychain"
            self._problems.error("unknown_secret", f"there is no keychain entry {name}", at, hint)
        elif scope == "ctx" and name not in {*self._ctx, *self._playbook.workload} and not uses.is_guarded(path[:2]):
            self._problems.warning("never_set", f"ctx.{name} is set nowhere", at, _close(name, self._ctx))
        elif scope == "workload" and name not in self._playbook.workload and not uses.is_guarded(path[:2]):
            hint = _close(name, self._playbook.workload) or "declare it there, so that it has a default"
            self._problems.warning("not_declared", f"workload has no {name}", at, hint)

    def _shadowed(self, step: Step, node: Node) -> None:
        iterator = node.get("loop", "iterator")
        tool = node.mapping["tool"]
        labels = [part.get("name") for part in tool.items]
        for name in (node.mapping["step"], iterator, *labels):
            if name is not None and name.value in _FIRST:
                said = f"{name.value} is a name of the language, which comes first in templates"
                self._problems.warning("shadowed", said, name.place, "choose another name")


def _reading(node: Node, scope: str) -> Iterator[Node]:
    """Walk over the templates that read something of a scope; broken ones are told about elsewhere."""
    for text in node.texts():
        if is_template(text.value) and scope in str(text.value):
            with suppress(TemplateFailed):
                if any(path[0] == scope for path in uses_of(str(text.value)).paths):
                    yield text


def _close(name: str, known: Iterable[str]) -> str | None:
    close = nearest(name, known)
    return f"did you mean {close}?" if close else None


def _local(step: Step) -> set[str]:
    names = {*step.input}
    if step.is_sequence:
        names |= {task.name for task in step.tasks}
    if step.loop is not None:
        names.add(step.loop.iterator)
    return names


def _inner_names(parsed: Parsed) -> frozenset[str]:
    """Return the names that the playbook gives to something inside a step, and that only that step knows."""
    names: set[str] = set()
    for step, node in zip(parsed.playbook.steps.values(), parsed.tree.mapping["workflow"].items, strict=True):
        names |= _local(step)
        tool = node.mapping["tool"]
        for task, part in zip(step.tasks, tool.items or [tool], strict=True):
            names |= {task.name, *task.input}
            if (output := part.get("output")) is not None:
                names |= {str(text.value) for text in output.texts()}
    return frozenset(names)


def _written(step: Step) -> Iterator[str]:
    yield from step.set
    for arc in () if step.router is None else step.router.arcs:
        yield from arc.set
    for task in step.tasks:
        yield from _written_by(task)


def _written_by(task: Task) -> Iterator[str]:
    yield from task.set
    for rule in () if task.policy is None else task.policy.rules:
        yield from rule.then.set


def _runs_a_playbook(task: Task) -> bool:
    return task.kind == "playbook" or (task.kind == "agent" and task.options.get("framework") == "noetl")
