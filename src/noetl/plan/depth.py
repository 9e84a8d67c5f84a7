"""How deep executions may start each other: the depth of a parent goes in, that of its child or a refusal comes out. Pure."""

from __future__ import annotations

from typing import Final

from noetl.errors import ChildTooDeep

MAX_CHILD_DEPTH: Final = 50
"""Playbooks that mean to call each other come nowhere near; one that calls itself without end is stopped soon."""
DEPTH_LIMIT: Final = "depth_limit"
"""The kind of error a task has whose child would be too deep."""


def depth_below(parent_depth: int, most: int, path: str) -> int:
    """Return the depth of a child; ChildTooDeep if there are as many executions above it as there may be."""
    depth = parent_depth + 1
    if depth > most:
        raise ChildTooDeep(
            f"the playbook {path} is not started: it would be {depth} levels below the first execution, and"
            f" runtime.scheduler.max_child_depth is {most}",
            hint="let a condition end playbooks that call each other, or raise the setting",
        )
    return depth
