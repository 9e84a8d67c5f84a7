"""The older name of a row's number: a step that reads `loop_index` goes in, the same step with today's names comes out."""

from __future__ import annotations

from functools import partial
from typing import Final

from noetl.playbook.legacy_words import asks, with_texts, with_word
from noetl.playbook.problems import Say
from noetl.playbook.template_uses import line_of, place_in
from noetl.playbook.templates import is_template
from noetl.playbook.tree import Node

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
