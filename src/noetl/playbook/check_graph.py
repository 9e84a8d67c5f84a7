"""Checks where steps lead: unknown and unreachable steps, arcs never taken, fan-outs that never meet again."""

from __future__ import annotations

from collections.abc import Iterable

from noetl.errors import TemplateFailed
from noetl.playbook.model import NOWHERE, Place, Playbook, Router
from noetl.playbook.parse import Parsed
from noetl.playbook.problems import Problems, suggest
from noetl.playbook.templates import is_template, names_in
from noetl.playbook.tree import Node


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
