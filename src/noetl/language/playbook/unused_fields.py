"""Fields that this build reads but ignores: a tree goes in, a warning for each comes out.

A field that asks for what happens anyway gets no warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from noetl.language.grammar.problems import Problems
from noetl.language.grammar.tree import Node
from noetl.language.playbook.parts import items_at, tasks_in, word_at


class Unused(NamedTuple):
    """A key that has no effect, the mapping it stands in, and the value that says what happens anyway."""

    holder: tuple[str, ...]
    key: str
    usual: Any = None


_OF_PLAYBOOKS: Final = (
    Unused(("executor",), "profile", "auto"),
    Unused(("executor",), "version", "noetl-runtime/1"),
    Unused(("executor", "requires"), "features"),
    *(Unused(("executor", "spec", "policy"), key) for key in ("defaults", "results")),
)
_OF_STEPS: Final = (
    Unused(("spec", "policy"), "emit"),
    Unused(("spec", "policy", "lifecycle"), "deadline_s"),
    Unused(("loop", "cursor", "options"), "max_iterations"),
    Unused(("loop", "spec", "policy"), "results"),
    Unused(("next", "spec"), "policy"),
)
_OF_ARCS: Final = (Unused((), "spec"),)
_OF_TASKS: Final = (
    Unused(("output",), "store", {"kind": "auto"}),
    Unused(("output",), "scope", "execution"),
    Unused(("output",), "preview_max_bytes"),
    Unused(("output",), "as"),
    Unused(("output", "accumulate"), "manifest_as"),
    *(Unused(("spec", "policy"), key) for key in ("before", "after", "finally")),
    Unused(("script", "source"), "region"),
)
_OF_KINDS: Final = {
    "playbook": (Unused((), "poll_interval"),),
    "mcp": (Unused((), "capabilities", {}), Unused((), "request_id")),
}


def note_unused(root: Node, problems: Problems) -> None:
    """Warn of what has no effect, wherever it stands in a playbook."""
    _note(root, _OF_PLAYBOOKS, problems)
    for step in items_at(root, "workflow"):
        _note(step, _OF_STEPS, problems)
        for arc in items_at(step, "next", "arcs"):
            _note(arc, _OF_ARCS, problems)
    for task in tasks_in(root):
        _note(task, (*_OF_TASKS, *_OF_KINDS.get(word_at(task, "kind") or "", ())), problems)


def _note(node: Node, fields: Iterable[Unused], problems: Problems) -> None:
    for field in fields:
        holder = node.get(*field.holder)
        if holder is None or field.key not in holder.mapping:
            continue
        if field.usual is None or holder.mapping[field.key].plain() != field.usual:
            said = f"{'.'.join((*field.holder, field.key))} has no effect"
            problems.warning("no_effect", said, holder.key_place(field.key), "remove it")
