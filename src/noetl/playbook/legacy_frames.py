"""The older word for a loop's bounds: a step with `frame_policy` goes in, the same step with `loop.spec` comes out.

Its `parallelism` counts frames in flight, so it is `max_in_flight` of the loop, as in the setting of that name.
"""

from __future__ import annotations

from collections.abc import Callable

from noetl.playbook.legacy_tasks import inside
from noetl.playbook.model import Place
from noetl.playbook.problems import Problems, Say
from noetl.playbook.tree import Node

_PLACES = ((), ("loop",), ("loop", "spec"))
_SPEC = ("loop", "spec")
_FRAME = ("loop", "spec", "frame")
_WORDS = {
    "size": (_FRAME, "max_rows"),
    "duration_ms": (_FRAME, "max_seconds"),
    "memory_bytes": (_FRAME, "max_bytes"),
    "parallelism": (_SPEC, "max_in_flight"),
}


def with_frame(step: Node, say: Say, problems: Problems) -> Node:
    """Return a step whose frame policies stand in its loop, telling of each, and of what is said twice and differs."""
    for path in _PLACES if "loop" in step.mapping else ():
        holder = step.get(*path)
        policy = None if holder is None else holder.get("frame_policy")
        if holder is None or policy is None:
            continue
        where = ".".join((*path, "frame_policy"))
        hint = "write loop.spec.frame with max_rows, max_seconds, max_bytes, and loop.spec.max_in_flight"
        say(where, hint, holder.key_place("frame_policy"))
        step = inside(step, path, lambda one: one.without("frame_policy"))
        step = _merged(step, policy, where, problems)
    return step


def _merged(step: Node, policy: Node, where: str, problems: Problems) -> Node:
    if not isinstance(policy.value, dict):
        return step if step.get(*_FRAME) else inside(step, _SPEC, _putting("frame", policy, policy.place))
    for old, value in policy.mapping.items():
        holder, new = _WORDS.get(old, (_FRAME, old))
        value, at = _seconds(value) if old == "duration_ms" else value, policy.key_place(old)
        given = step.get(*holder, new)
        if given is None:
            step = inside(step, holder, _putting(new, value, at))
        elif given.plain() != value.plain():
            there = f"{'.'.join((*holder, new))} in line {given.place.line}"
            said = f"{where}.{old} and {there} stand for one thing and differ"
            problems.error("given_twice", said, at, "leave one of them out")
    return step


def _putting(key: str, value: Node, at: Place) -> Callable[[Node], Node]:
    return lambda node: node.with_entry(key, value, at)


def _seconds(node: Node) -> Node:
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return Node(node.value / 1000, node.place)
    text = (node.text or "").strip()
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        return Node(f"{{{{ ({text[2:-2].strip()}) / 1000 }}}}", node.place)
    return node
