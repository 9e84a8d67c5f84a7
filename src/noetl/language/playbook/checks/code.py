"""Checks programs for templates: code is never rendered, so a template in it stays as it is. What to write is told.

Python's own braces are no templates: those of formatted text, and text that reads no name of the playbook.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from typing import Final

from noetl.errors import TemplateFailed
from noetl.language.grammar.problems import Problems
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.parse import Parsed
from noetl.language.playbook.parts import tasks_in, word_at
from noetl.language.playbook.template_uses import SCOPES, line_of, place_in, uses_of

_TEMPLATE: Final = re.compile(r"\{\{-?\s*+(?P<what>[A-Za-z_][^{}]*+)\}\}")
_FORMATTED: Final = re.compile(r"[a-zA-Z]*[fF][a-zA-Z]*['\"]")


def check_code(parsed: Parsed, problems: Problems) -> None:
    """Warn of templates in programs, with the input that says the same."""
    playbook = parsed.playbook
    known = SCOPES | playbook.workload.keys() | playbook.steps.keys()
    for task in tasks_in(parsed.tree):
        kind = KINDS.get(word_at(task, "kind"))
        code = None if kind is None or kind.program is None else task.get(kind.program)
        if code is None or code.text is None or "{{" not in code.text:
            continue
        own = known | _names(task)
        found = {_bare(one["what"]): one[0] for one in _TEMPLATE.finditer(_readable(code.text))}
        for what, written in found.items():
            name = _first(what)
            if name is not None and name in own:
                _tell(code, what, line_of(code.text, written), problems)


def _tell(code: Node, what: str, line: int, problems: Problems) -> None:
    word = re.sub(r"\W+", "_", what.split("|")[0].strip()).strip("_").lower()
    at = place_in(code, line)
    said = f"{{{{ {what} }}}} stays as it is: code is not made of values"
    hint = f'write input: {{{word}: "{{{{ {what} }}}}"}}, and {word} in the code'
    problems.warning("template_in_code", said, at, hint)


def _bare(what: str) -> str:
    """Return an expression without the blanks, and the sign that takes blanks away, before its closing braces."""
    return what.rstrip().removesuffix("-").rstrip()


def _names(task: Node) -> set[str]:
    given = task.get("input")
    return set() if given is None else set(given.mapping)


def _first(what: str) -> str | None:
    """Return the name a template begins with; None where it is none."""
    try:
        paths = uses_of(f"{{{{ {what} }}}}").paths
    except TemplateFailed:
        return None
    found = re.match(r"[A-Za-z_]\w*", what)
    return found[0] if found is not None and any(path[0] == found[0] for path in paths) else None


def _readable(code: str) -> str:
    """Return code without its formatted texts, in which two braces stand for one; as it is if it is no Python."""
    try:
        ast.parse(code)
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return code
    lines = code.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    kept, at = [], 0
    for token in tokens:
        is_formatted = token.type == tokenize.STRING and _FORMATTED.match(token.string)
        if is_formatted or token.type == tokenize.COMMENT:
            kept.append(code[at : starts[token.start[0] - 1] + token.start[1]])
            at = starts[token.end[0] - 1] + token.end[1]
    return "".join((*kept, code[at:]))
