"""Older names in templates: `result`, `response` and `outcome` become `output`, `loop_index` becomes today's names.

Text in quotes and names that belong to something else (`x.word`, `word=`) stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Final

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Say
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.template_uses import line_of, place_in
from noetl.language.templates.template import compiled, is_template

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


_OLD_OUTPUTS: Final = {
    "result": (("result", "output.data"),),
    "response": (("response", "output.data"),),
    "outcome": ((r"outcome\.(?:result|response)", "output.data"), ("outcome", "output")),
}
"""Each older name, and what stands for it now."""
_OF_STEPS: Final = (("set",), ("next",))
_OF_TASKS: Final = (("set",), ("spec", "policy", "rules"))


def with_output(root: Node, say: Say) -> Node:
    """Return a playbook whose steps and tasks read what they came to by today's name."""
    words = [word for word in _OLD_OUTPUTS if not gives(root, word)]
    workflow = root.get("workflow")
    if not words or workflow is None:
        return root
    steps = [_step(step, words, say) for step in workflow.items]
    return root.with_entry("workflow", Node(steps, workflow.place), root.key_place("workflow"))


def _step(step: Node, words: Iterable[str], say: Say) -> Node:
    def read(text: Node) -> Node:
        for word in words:
            source = text.text
            if source is not None and word in source and is_template(source) and asks(source, word):
                say(word, f"write {_OLD_OUTPUTS[word][-1][1]}", place_in(text, line_of(source, word)))
                for old, new in _OLD_OUTPUTS[word]:
                    text = with_word(text, old, new)
        return text

    step = _under(step, _OF_STEPS, read)
    tool = step.get("tool")
    if tool is None:
        return step
    if isinstance(tool.value, list):
        tool = Node([_under(task, _OF_TASKS, read) for task in tool.items], tool.place)
    else:
        tool = _under(tool, _OF_TASKS, read)
    return step.with_entry("tool", tool, step.key_place("tool"))


def _under(node: Node, paths: Iterable[tuple[str, ...]], read: Callable[[Node], Node]) -> Node:
    for path in paths:
        node = _at(node, path, read)
    return node


def _at(node: Node, path: tuple[str, ...], read: Callable[[Node], Node]) -> Node:
    if not path:
        return with_texts(node, read)
    inner = node.get(path[0])
    return node if inner is None else node.with_entry(path[0], _at(inner, path[1:], read), node.key_place(path[0]))


OLD: Final = "loop_index"
_IN_A_ROW: Final = "iter._index"
_AFTER_THE_ROWS: Final = "loop.index"
_AFTER: Final = frozenset({"set", "next"})


def with_index(step: Node, say: Say) -> Node:
    """Return a step with a loop, its templates reading the row's number by today's name."""
    if "loop" not in step.mapping:
        return step
    for key, part in step.mapping.items():
        if key in ("step", "loop"):
            continue
        new = _AFTER_THE_ROWS if key in _AFTER else _IN_A_ROW
        step = step.with_entry(key, with_texts(part, partial(_read, new=new, say=say)))
    return step


def _read(text: Node, new: str, say: Say) -> Node:
    source = text.text
    if source is None or OLD not in source or not is_template(source) or not asks(source, OLD):
        return text
    say(OLD, f"write {new}", place_in(text, line_of(source, OLD)))
    return with_word(text, OLD, new)
