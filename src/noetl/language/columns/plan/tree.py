"""Reads the JSON that Spark writes of a plan: a list of nodes, parents before children, comes out as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass
class Node:
    """An operator of a plan or an expression."""

    name: str
    """The class without its package."""
    params: dict[str, Any]
    """What it is told; expressions and plans in it are nodes."""
    children: list[Node] = field(default_factory=list)

    @property
    def expr_id(self) -> int | None:
        """The number Spark gives to a named value."""
        found = self.params.get("exprId")
        return found["id"] if isinstance(found, dict) else None

    def nodes(self, name: str) -> list[Node]:
        """Return the expressions of a parameter that is a list, or one alone."""
        found = self.params.get(name)
        if isinstance(found, Node):
            return [found]
        return [one for one in found if isinstance(one, Node)] if isinstance(found, list) else []


def read_plan(text: str) -> Node:
    """Return the tree of a plan."""
    root = _decoded(orjson.loads(text))
    if not isinstance(root, Node):
        raise ValueError("this is not what Spark writes of a plan")
    return root


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], dict) and "class" in value[0]:
        return _tree(value)
    return [_decoded(one) for one in value]


def _tree(flat: list[dict[str, Any]]) -> Node:
    root: Node | None = None
    waiting: list[tuple[Node, int]] = []
    for one in flat:
        params = {name: _decoded(value) for name, value in one.items() if name not in ("class", "num-children")}
        node = Node(one["class"].rsplit(".", 1)[-1], params)
        while waiting and waiting[-1][1] == len(waiting[-1][0].children):
            waiting.pop()
        if waiting:
            waiting[-1][0].children.append(node)
        elif root is not None:
            raise ValueError("this is not what Spark writes of a plan")
        else:
            root = node
        waiting.append((node, one["num-children"]))
    assert root is not None
    return root
