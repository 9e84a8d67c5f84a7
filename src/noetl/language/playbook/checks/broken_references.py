"""Checks references in a playbook that does not match the grammar: its tree goes in, errors come out.

A name counts as known if it occurs anywhere in the document, so no mistake is reported twice and every error holds
however the structure is corrected.
"""

from __future__ import annotations

from collections.abc import Iterator

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.template_uses import (
    OF_WORKLOAD,
    SCOPES,
    check_filters,
    instead_of,
    line_of,
    may_be_given,
    place_in,
    uses_of,
)
from noetl.language.templates.template import is_template

_PROGRAMS = frozenset(filter(None, (kind.program for kind in KINDS.values())))
"""Fields that may hold a program, whose braces are its own."""


def check_broken(tree: Node, problems: Problems) -> None:
    """Note steps, secrets and names that a playbook refers to and has not."""
    _Broken(tree, problems).check()


class _Broken:
    def __init__(self, tree: Node, problems: Problems) -> None:
        self._tree = tree
        self._problems = problems
        self._steps = _names(tree.get("workflow"), "step")
        self._secrets = _names(tree.get("keychain"), "name")
        self._known = (SCOPES | OF_WORKLOAD | set(_words(tree))) - {"now"}
        workload = tree.get("workload")
        self._early = set() if workload is None else {id(text) for text in _templates(workload)}
        self._told = {(one.line, one.column) for one in problems.errors}

    def check(self) -> None:
        for key in ("entry_step", "final_step"):
            self._leads(self._tree.get("executor", "spec", key))
        workflow = self._tree.get("workflow")
        for step in () if workflow is None else workflow.items:
            arcs = step.get("next", "arcs")
            for arc in () if arcs is None else arcs.items:
                self._leads(arc.get("step"))
        for text in _templates(self._tree):
            if (text.place.line, text.place.column) not in self._told:
                self._template(text)

    def _leads(self, target: Node | None) -> None:
        """Look for a step that is led to; where a step's own name is missing or wrong, nobody can tell."""
        if target is None or target.text is None or target.text in self._steps or not self._all_named():
            return
        hint = suggest(target.text, self._steps)
        self._problems.error("unknown_step", f"there is no step {target.text}", target.place, hint)

    def _all_named(self) -> bool:
        workflow = self._tree.get("workflow")
        return workflow is not None and bool(self._steps) and len(self._steps) == len(workflow.items)

    def _template(self, text: Node) -> None:
        source = str(text.value)
        try:
            uses = uses_of(source)
        except TemplateFailed as error:
            line = error.details.get("line")
            at = place_in(text, line if isinstance(line, int) else 1)
            self._problems.error("template_invalid", f"this template cannot be read: {error.message}", at)
            return
        check_filters(text, uses, self._problems)
        known = self._known | OF_WORKLOAD if id(text) in self._early else self._known
        for name in sorted({str(path[0]) for path in uses.paths} - known):
            is_free = id(text) not in self._early and may_be_given(name, self._known, source)
            if not is_free and not uses.is_guarded((name,)):
                at = place_in(text, line_of(source, name))
                hint = instead_of(name, self._known)
                self._problems.error("undefined_name", f"nothing is called {name}", at, hint)
        asked = {path[1] for path in uses.paths if path[0] == "keychain" and len(path) > 1 and isinstance(path[1], str)}
        for name in sorted(asked - self._known):
            hint = suggest(name, self._secrets) or "declare it under keychain"
            at = place_in(text, line_of(source, f"keychain.{name}"))
            self._problems.error("unknown_secret", f"there is no keychain entry {name}", at, hint)


def _names(items: Node | None, key: str) -> set[str]:
    return {name.text for item in ([] if items is None else items.items) if (name := item.get(key)) and name.text}


def _words(node: Node) -> Iterator[str]:
    """Walk over all keys, the parts of dotted ones too, and over all texts that could be a name."""
    for key, below in node.mapping.items():
        yield from (key, *key.split("."))
        yield from _words(below)
    for item in node.items:
        yield from _words(item)
    if node.text is not None and node.text.isidentifier():
        yield node.text


def _templates(node: Node) -> Iterator[Node]:
    for key, below in node.mapping.items():
        if key not in _PROGRAMS:
            yield from _templates(below)
    for item in node.items:
        yield from _templates(item)
    if is_template(node.value):
        yield node
