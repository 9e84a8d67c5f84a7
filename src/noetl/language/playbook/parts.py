"""Walks over the parts of a playbook's tree; what is missing or of a wrong shape is passed over."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.language.grammar.tree import Node


def items_at(node: Node, *path: str) -> list[Node]:
    """Return the items of the list under a path."""
    found = node.get(*path)
    return [] if found is None else found.items


def tasks_in(root: Node) -> Iterator[Node]:
    """Walk over every task of the workbook and of the steps."""
    for holder in (*items_at(root, "workbook"), *items_at(root, "workflow")):
        tool = holder.get("tool")
        if tool is not None:
            yield from tool.items or [tool]


def uncalled_in(root: Node) -> set[str]:
    """Return the names of the workbook's tasks that no task calls."""
    called = {
        word_at(task, "task") or word_at(task, "name") for task in tasks_in(root) if word_at(task, "kind") == "workbook"
    }
    return {word_at(entry, "name") for entry in items_at(root, "workbook")} - called


def word_at(node: Node, key: str) -> str:
    """Return the text under a key, empty if there is none."""
    found = node.get(key)
    return "" if found is None else found.text or ""
