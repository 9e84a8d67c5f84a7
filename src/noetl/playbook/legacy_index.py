"""The older name of a row's number: a step that reads `loop_index` goes in, the same step with today's names comes out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from noetl.errors import TemplateFailed
from noetl.playbook.problems import Say
from noetl.playbook.template_uses import line_of, place_in
from noetl.playbook.templates import compiled, is_template
from noetl.playbook.tool_fields import KINDS
from noetl.playbook.tree import Node

OLD: Final = "loop_index"
_IN_A_ROW: Final = "iter._index"
_AFTER_THE_ROWS: Final = "loop.index"
_AFTER: Final = frozenset({"set", "next"})
_MARKED: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_WORD: Final = re.compile(
    rf"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<![\w.]){OLD}(?!\w)(?!\s*=[^=])""", re.DOTALL
)


def gives_index(root: Node) -> bool:
    """Tell whether a playbook itself gives something the old name, which then means that."""
    workload = root.get("workload")
    return (workload is not None and OLD in workload.mapping) or any(name == OLD for name in _names(root))


def with_index(step: Node, say: Say) -> Node:
    """Return a step with a loop, its templates reading the row's number by today's name."""
    if "loop" not in step.mapping:
        return step
    for key, part in step.mapping.items():
        if key in ("step", "loop"):
            continue
        new = _AFTER_THE_ROWS if key in _AFTER else _IN_A_ROW
        step = step.with_entry(key, _changed(part, partial(_read, new=new, say=say)))
    return step


def _names(node: Node) -> Iterator[str]:
    """Walk over the names that steps, tasks, iterators and `set` give."""
    for key, below in node.mapping.items():
        if key in ("step", "name", "iterator") and below.text is not None:
            yield below.text
        if key == "set":
            yield from (name.removeprefix("ctx.") for name in below.mapping)
        yield from _names(below)
    for item in node.items:
        yield from _names(item)


def _changed(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node with its texts changed, but for programs, whose braces are their own."""
    if isinstance(node.value, dict):
        kind = KINDS.get(str(found.value)) if (found := node.get("kind")) is not None else None
        program = None if kind is None else kind.program
        parts = {key: part if key == program else _changed(part, change) for key, part in node.mapping.items()}
        return Node(parts, node.place, node.keys, node.is_literal)
    if isinstance(node.value, list):
        return Node([_changed(item, change) for item in node.items], node.place)
    return change(node)


def _read(text: Node, new: str, say: Say) -> Node:
    source = text.text
    if source is None or OLD not in source or not is_template(source) or not _asks(source):
        return text
    say(OLD, f"write {new}", place_in(text, line_of(source, OLD)))
    return Node(_MARKED.sub(lambda mark: _renamed(mark[0], new), source), text.place, text.keys, text.is_literal)


def _asks(source: str) -> bool:
    try:
        return OLD in compiled(source).names
    except TemplateFailed:
        return False  # the check tells what is wrong with it


def _renamed(mark: str, new: str) -> str:
    return _WORD.sub(lambda found: found[0] if found["text"] else new, mark)
