"""Older names of what just ended: where `set`, `next` and rules read `result`, `response` or `outcome`, `output` is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from noetl.playbook.legacy_words import asks, gives, with_texts, with_word
from noetl.playbook.problems import Say
from noetl.playbook.template_uses import line_of, place_in
from noetl.playbook.templates import is_template
from noetl.playbook.tree import Node

_OLD: Final = {
    "result": (("result", "output.data"),),
    "response": (("response", "output.data"),),
    "outcome": ((r"outcome\.(?:result|response)", "output.data"), ("outcome", "output")),
}
"""Each older name, and what stands for it now."""
_OF_STEPS: Final = (("set",), ("next",))
_OF_TASKS: Final = (("set",), ("spec", "policy", "rules"))


def with_output(root: Node, say: Say) -> Node:
    """Return a playbook whose steps and tasks read what they came to by today's name."""
    words = [word for word in _OLD if not gives(root, word)]
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
                say(word, f"write {_OLD[word][-1][1]}", place_in(text, line_of(source, word)))
                for old, new in _OLD[word]:
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
