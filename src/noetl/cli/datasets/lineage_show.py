"""What `noetl lineage` says of the way of data: as a tree for a person, as a diagram, as facts for a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from noetl.pipelines.datasets.lineage_tree import Direction, Leaf


def facts(tree: Leaf, direction: Direction, mark: str) -> dict[str, Any]:
    """Return a tree as plain values."""
    return {"as_of": mark, "direction": direction, "tree": msgspec.to_builtins(tree)}


def text(tree: Leaf) -> str:
    """Return a tree as lines."""
    return "".join(f"{line}\n" for line in _lines(tree, "", ""))


def mermaid(tree: Leaf, direction: Direction) -> str:
    """Return a tree as a diagram; what is met twice is drawn once. Arrows go the way of the data."""
    names: dict[str, str] = {}
    arrows: dict[str, None] = {}

    def node(leaf: Leaf) -> str:
        label = _label(leaf)
        if label not in names:
            names[label] = f"n{len(names)}"
        return names[label]

    def walk(leaf: Leaf) -> None:
        here = node(leaf)
        for one in leaf.next:
            there = node(one)
            ends = (there, here) if direction == "upstream" else (here, there)
            kind = f"|{one.kind}|" if one.kind else ""
            arrows[f"    {ends[0]} -->{kind} {ends[1]}"] = None
            walk(one)

    walk(tree)
    drawn = [f'    {name}["{_escaped(label)}"]' for label, name in names.items()]
    return "\n".join(["flowchart LR", *drawn, *arrows, ""])


def _lines(leaf: Leaf, first: str, rest: str) -> Iterator[str]:
    told = [_label(leaf)]
    if leaf.kind:
        told.append(f"({leaf.kind})")
    if leaf.made_by:
        told.append(f"made by {leaf.made_by}")
    if leaf.how and (leaf.column is not None or leaf.how in ("opaque", "unknown")):
        told.append(f"[{leaf.how}]" if leaf.reason is None else f"[{leaf.how}: {leaf.reason}]")
    yield first + " ".join(told)
    if leaf.column is not None and leaf.indirect and leaf.next:
        bar = "│  " if leaf.next else "   "
        columns = ", ".join(f"{one.dataset}.{one.column or '*'}" for one in leaf.indirect)
        yield f"{rest}{bar}rows decided by {columns}"
    if leaf.more:
        yield f"{rest}└─ …"
    for place, one in enumerate(leaf.next):
        last = place == len(leaf.next) - 1
        yield from _lines(one, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _label(leaf: Leaf) -> str:
    if leaf.dataset is None:
        return "a constant" if leaf.kind == "constant" else "outside"
    return leaf.dataset if leaf.column is None else f"{leaf.dataset}.{leaf.column}"


def _escaped(label: str) -> str:
    return label.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
