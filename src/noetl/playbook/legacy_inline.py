"""A script that stands in the playbook itself: a task with the script source `inline` goes in, one with its text comes out."""

from __future__ import annotations

from typing import Final

from noetl.playbook.problems import Say
from noetl.playbook.tree import Node

_TEXTS: Final = ("code", "content", "text", "inline", "body", "script", "command", "value")
"""Where such a script may stand, in `script` or in its `source`."""
_FIELDS: Final = {"python": "code", "postgres": "command", "shell": "cmds"}
"""The field that holds the text of a kind."""
_SHELLS: Final = frozenset({"bash", "sh", "shell"})


def with_inline(task: Node, say: Say) -> Node:
    """Return a task that has the text of its inline script as its own; a `script` task becomes what the text is."""
    script, kind = task.get("script"), task.get("kind")
    found = None if script is None else _text(script)
    if script is None or kind is None or found is None or found.text is None:
        return task
    word = _kind(script, found.text) if kind.text == "script" else kind.text
    field = _FIELDS.get(str(word))
    if field is None or field in task.mapping:
        return task
    shown = field if word == kind.text else f"kind: {word} with {field}"
    say("the script source inline", f"write {shown}", task.key_place("script"))
    return task.without("script", "job").with_entry("kind", Node(word, kind.place)).with_entry(field, found)


def _text(script: Node) -> Node | None:
    source = script.get("source")
    if source is None or "inline" not in (source.text, _word(source, "type")):
        return None
    for holder in (source, script):
        for name in _TEXTS:
            found = holder.get(name)
            if found is not None and found.text is not None:
                return found
    return None


def _kind(script: Node, text: str) -> str:
    """Return what runs a text: what it says it is written in, or python."""
    told = next((word for name in ("language", "interpreter", "runtime") if (word := _word(script, name))), "")
    first = text.split("\n", 1)[0]
    is_shell = told in _SHELLS or (first.startswith("#!") and first.rstrip().endswith(("sh", "bash")))
    return "shell" if is_shell else "python"


def _word(node: Node, key: str) -> str | None:
    found = node.get(key)
    return None if found is None else found.text
