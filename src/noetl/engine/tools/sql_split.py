"""Reads SQL text the way PostgreSQL's own client does: statements come out whole, with the words outside all quotes.

It never judges whether SQL is right: an unterminated quote or comment runs to the end of the text, for the server to
complain about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_MARK = re.compile(
    r"""
      (?P<end>;)
    | (?P<escaped>(?<![\w$])[eE]'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+(?:'|\\?\Z))
    | (?P<quoted>'[^']*+(?:'|\Z) | "[^"]*+(?:"|\Z))
    | (?P<line>--[^\n\r]*+)
    | (?P<block>/\*)
    | (?P<dollar>(?<![\w$])\$(?:[^\W\d]\w*)?\$)
    | (?P<paren>[()])
    | (?P<word>(?<![\w$])[^\W\d][\w$]*+)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_PLACEHOLDER = re.compile(
    r"(?<![\w$])\$(?P<number>\d+)|(?:(?<![\w:\[]):(?=[^\W\d])(?P<colon>\w+)|%\((?P<percent>\w+)\)s)|%(?P<next>s)(?!\w)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its text and, in upper case, its words outside quotes, comments and parentheses."""

    text: str
    words: tuple[str, ...]
    judged: dict[object, bool] = field(default_factory=dict, compare=False, repr=False)
    """What was found out about it already, by who asked."""


def split(text: str) -> list[str]:
    """Return the statements of a script without their semicolons; empty ones and lone comments are left out."""
    return [statement.text for statement in statements(text)]


@lru_cache(maxsize=128)
def _kept(text: str) -> tuple[Statement, ...]:
    return tuple(_read(text))


def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a script with their words."""
    # Scripts come back again and again, long texts are mostly a row's own values.
    return _kept(text) if len(text) <= 4096 else tuple(_read(text))


def _read(text: str) -> Iterator[Statement]:
    start, words, depth, bodies, written = 0, list[str](), 0, 0, False
    for kind, begin, stop in _marks(text):
        if kind == "end" and depth == 0 and bodies == 0:
            if written:
                yield Statement(text[start:begin].strip(), tuple(words))
            start, words, written = stop, [], False
        elif kind == "paren":
            depth, written = max(0, depth + (1 if text[begin] == "(" else -1)), True
        elif kind == "word" and depth == 0:
            word = text[begin:stop].upper()
            words.append(word)
            written = True
            if bodies == 0:
                bodies = 1 if word == "ATOMIC" and _opens_body(words) else 0
            elif word in ("CASE", "END"):
                bodies += 1 if word == "CASE" else -1
        elif kind not in ("comment", "space"):
            written = True
    if written:
        yield Statement(text[start:].strip(), tuple(words))


def _opens_body(words: list[str]) -> bool:
    made = [word for word in words[:4] if word not in ("OR", "REPLACE")]
    return made[:1] == ["CREATE"] and made[1:2] in (["FUNCTION"], ["PROCEDURE"]) and words[-2] == "BEGIN"


def _marks(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind, begin and end of everything in the text, what lies between marks as `other` or `space`."""
    at, found = 0, _MARK.search(text)
    while found is not None:
        begin, stop, kind = found.start(), found.end(), found.lastgroup or ""
        if begin > at:
            yield ("space" if text[at:begin].isspace() else "other"), at, begin
        if kind == "block":
            kind, stop = "comment", _comment_end(text, stop)
        elif kind == "line":
            kind = "comment"
        elif kind == "dollar":
            close = text.find(found.group(), stop)
            stop = len(text) if close < 0 else close + len(found.group())
        yield kind, begin, stop
        at, found = stop, _MARK.search(text, stop)
    if at < len(text):
        yield ("space" if text[at:].isspace() else "other"), at, len(text)


def _comment_end(text: str, at: int) -> int:
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            return len(text)
        depth, at = depth + (1 if edge.group() == "/*" else -1), edge.end()
    return at


def replace_placeholders(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Return the text with every placeholder outside quotes and comments replaced.

    A match has one group: `number` for `$1`, `name` for `:name` and `%(name)s`, `next` for `%s`.
    """
    parts, code = list[str](), 0
    for kind, begin, stop in _marks(text):
        if kind in ("escaped", "quoted", "comment", "dollar"):
            parts += _PLACEHOLDER.sub(replace, text[code:begin]), text[begin:stop]
            code = stop
    parts.append(_PLACEHOLDER.sub(replace, text[code:]))
    return "".join(parts)
