"""Checks control flow: unknown and unreachable steps, dead arcs, loops whose rows race, children without `wait`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.model import NOWHERE, Place, Playbook, Router, Step
from noetl.language.playbook.parse import Parsed
from noetl.language.playbook.parts import tasks_in, word_at
from noetl.language.templates.template import is_template, names_in


def check_graph(parsed: Parsed, problems: Problems) -> None:
    """Note what is wrong with the ways between steps."""
    _Graph(parsed, problems).check()


class _Graph:
    def __init__(self, parsed: Parsed, problems: Problems) -> None:
        self._playbook: Playbook = parsed.playbook
        self._problems = problems
        self._tree = parsed.tree
        self._nodes = dict(zip(parsed.playbook.steps, parsed.tree.mapping["workflow"].items, strict=True))
        self._targets = {
            name: [arc.step for arc in step.router.arcs if arc.step in parsed.playbook.steps] if step.router else []
            for name, step in parsed.playbook.steps.items()
        }

    def check(self) -> None:
        for key, name in (("entry_step", self._playbook.entry), ("final_step", self._playbook.final)):
            if name is not None and name not in self._playbook.steps:
                node = self._tree.get("executor", "spec", key)
                self._unknown(name, NOWHERE if node is None else node.place)
        for name, step in self._playbook.steps.items():
            if step.router is not None:
                self._arcs(name, step.router)
            if self._playbook.no_next_is_error and not self._targets[name] and name != self._playbook.final:
                hint = "write next, or make it executor.spec.final_step"
                self._problems.error("no_next", f"the step {name} leads nowhere", self._place(name), hint)
        self._unreachable()
        self._reducers()

    def _arcs(self, name: str, router: Router) -> None:
        nodes = self._nodes[name].mapping["next"].get("arcs")
        always: Place | None = None
        for arc, node in zip(router.arcs, [] if nodes is None else nodes.items, strict=True):
            if arc.step not in self._playbook.steps:
                self._unknown(arc.step, node.mapping["step"].place)
            if always is not None and router.mode == "exclusive":
                hint = f"the arc in line {always.line} is always taken"
                self._problems.warning("unreachable_arc", "this arc is never taken", arc.place, hint)
            if arc.when is None or arc.when == "true":
                always = always or arc.place
        targets = set(self._targets[name])
        if router.mode == "inclusive" and len(targets) > 1 and not self._meet(targets):
            hint = "lead its branches to one step, if they belong together"
            self._problems.warning("fanout_no_reducer", f"the branches of {name} never meet", self._place(name), hint)

    def _meet(self, targets: Iterable[str]) -> bool:
        seen: set[str] = set()
        for target in targets:
            reached = self._reachable([target])
            if seen & reached:
                return True
            seen |= reached
        return False

    def _unreachable(self) -> None:
        starts = [name for name in (self._playbook.entry, self._playbook.final) if name in self._playbook.steps]
        if self._playbook.entry not in self._playbook.steps:
            return
        for name in self._playbook.steps.keys() - self._reachable(starts):
            hint = "lead an arc to it, or remove it"
            self._problems.warning("unreachable_step", f"the step {name} is never reached", self._place(name), hint)

    def _reducers(self) -> None:
        for name, step in self._playbook.steps.items():
            if step.loop is None and _reads_fanin(self._nodes[name]):
                said = f"the step {name} reads fanin, but has no loop whose rows come together there"
                hint = "read fanin in set and next of the step with the loop"
                self._problems.warning("reducer_orphan", said, self._place(name), hint)

    def _reachable(self, starts: Iterable[str]) -> set[str]:
        waiting = list(starts)
        seen = set(waiting)
        while waiting:
            for target in self._targets[waiting.pop()]:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return seen

    def _unknown(self, name: str, place: Place) -> None:
        self._problems.error("unknown_step", f"there is no step {name}", place, suggest(name, self._playbook.steps))

    def _place(self, name: str) -> Place:
        return self._nodes[name].mapping["step"].place


def _reads_fanin(step: Node) -> bool:
    marked = (text for text in step.texts() if is_template(text.value) and "fanin" in str(text.value))
    return any("fanin" in _names(text) for text in marked)


def _names(text: Node) -> frozenset[str]:
    try:
        return names_in(text.value)
    except TemplateFailed:
        return frozenset()


_AT_ONCE = frozenset({"parallel", "fanout", "cursor"})


def check_loops(parsed: Parsed, problems: Problems) -> None:
    """Note what is wrong with loops."""
    for step, node in zip(parsed.playbook.steps.values(), parsed.tree.mapping["workflow"].items, strict=True):
        if step.loop is None:
            continue
        if step.loop.mode in _AT_ONCE:
            for key, place in _shared_writes(node):
                said = f"rows of the step {step.name} write {key} at once: the last row in order wins"
                problems.warning("ctx_written_by_rows", said, place, "write iter.name, and set ctx after the loop")
        _commit(step, node, problems)


def _commit(step: Step, node: Node, problems: Problems) -> None:
    assert step.loop is not None
    commit = node.get("loop", "spec", "frame", "commit")
    if commit is None or commit.value != "frame" or step.tasks[-1].kind == "postgres":
        return
    said = f"commit: frame needs postgres as the last task, and the step {step.name} ends with {step.tasks[-1].kind}"
    problems.error("frame_commit", said, commit.place, "write commit: row, or end the step with a postgres task")


def _shared_writes(step: Node) -> Iterator[tuple[str, Place]]:
    tool = step.mapping["tool"]
    for task in tool.items or [tool]:
        rules = task.get("spec", "policy", "rules")
        places = [task.get("set")]
        for rule in [] if rules is None else rules.items:
            places += [rule.get("then", "set"), rule.get("else", "then", "set")]
        for node in places:
            for key in {} if node is None else node.mapping:
                if node is not None and not key.startswith(("iter.", "step.")):
                    yield key, node.key_place(key)


_SAYS: Final = frozenset({"wait", "return_step", "result_step", "return_result"})


def check_children(parsed: Parsed, problems: Problems) -> None:
    """Warn of children whose parent waits for them without saying so, which older NoETL did in local runs alone."""
    for task in tasks_in(parsed.tree):
        if word_at(task, "kind") == "playbook" and not _SAYS & task.mapping.keys():
            said = "this waits for the end of the other playbook, which older NoETL did only in local runs"
            hint = "write wait: true, or wait: false to go on at once with its execution_id"
            problems.warning("waits_unsaid", said, task.key_place("kind"), hint)
