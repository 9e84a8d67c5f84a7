"""Changes words inside templates: a node goes in, the same node with its templates changed comes out.

Words in quotes and names that belong to something else (`x.word`, `word=`) stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from noetl.errors import TemplateFailed
from noetl.playbook.templates import compiled
from noetl.playbook.tool_fields import KINDS
from noetl.playbook.tree import Node

_MARKED: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def with_texts(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node with its texts changed, but for programs, whose braces are their own."""
    if isinstance(node.value, dict):
        kind = KINDS.get(str(found.value)) if (found := node.get("kind")) is not None else None
        program = None if kind is None else kind.program
        parts = {key: part if key == program else with_texts(part, change) for key, part in node.mapping.items()}
        return Node(parts, node.place, node.keys, node.is_literal)
    if isinstance(node.value, list):
        return Node([with_texts(item, change) for item in node.items], node.place)
    return change(node)


def with_word(text: Node, word: str, new: str) -> Node:
    """Return a template that reads another name in place of a word."""
    marked = _MARKED.sub(
        lambda mark: _word(word).sub(lambda found: found[0] if found["text"] else new, mark[0]), _of(text)
    )
    return Node(marked, text.place, text.keys, text.is_literal)


def with_calls(text: Node, word: str, change: Callable[[str], str | None]) -> Node:
    """Return a template with each call of a function by one plain argument changed; None leaves a call as it is."""

    def changed(found: re.Match[str]) -> str:
        return found[0] if found["text"] else change(found["argument"].strip()) or found[0]

    marked = _MARKED.sub(lambda mark: _call(word).sub(changed, mark[0]), _of(text))
    return Node(marked, text.place, text.keys, text.is_literal)


def asks(source: str, word: str) -> bool:
    """Tell whether a template asks for a name; of a broken one the check tells what is wrong."""
    try:
        return word in compiled(source).names
    except TemplateFailed:
        return False


def gives(root: Node, word: str) -> bool:
    """Tell whether a playbook itself gives something this name, which then means that."""
    workload = root.get("workload")
    return (workload is not None and word in workload.mapping) or any(name == word for name in _names(root))


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


def _of(text: Node) -> str:
    return text.text or ""


_QUOTED: Final = r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""


@lru_cache(maxsize=64)
def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"{_QUOTED}|(?<![\w.]){word}(?!\w)(?!\s*=[^=])", re.DOTALL)


@lru_cache(maxsize=64)
def _call(word: str) -> re.Pattern[str]:
    argument = r"""(?P<argument>"[^"]*"|'[^']*'|[A-Za-z_][\w.]*)"""
    return re.compile(rf"(?<![\w.]){word}\(\s*{argument}\s*\)|{_QUOTED}", re.DOTALL)
