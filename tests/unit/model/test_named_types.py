"""Every event type that the product names, in Python or in SQL, is declared: a stale or misspelt name would match nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import noetl
from noetl.faults import POINTS
from noetl.model.catalogue import BY_NAME

SOURCE = Path(noetl.__file__).parent
NOUNS = "|".join(sorted({name.partition(".")[0] for name in BY_NAME}))
PAST = r"\w*(?:ed|done|swept|ready|read|rolled_back|_set)"
NAME = rf"(?:{NOUNS})(?:\.[a-z]+)?\.{PAST}"
OTHER_WORDS = {"step.done", "step.failed"}
"""What playbooks may call the ends of their steps."""


def named(text: str) -> Iterator[str]:
    """Yield what looks like an event type: a whole text in Python, a quoted one in SQL."""
    if re.fullmatch(NAME, text):
        yield text
    yield from re.findall(rf"'({NAME})'", text)


def test_every_type_that_is_named_is_declared() -> None:
    found = {
        (name, path.name)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in named(node.value)
    }
    found |= {(name, path.name) for path in SOURCE.rglob("*.sql") for name in named(path.read_text())}
    assert len({name for name, _ in found} & BY_NAME.keys()) > 100
    known = BY_NAME.keys() | POINTS.keys() | OTHER_WORDS
    assert sorted((name, where) for name, where in found if name not in known) == []
