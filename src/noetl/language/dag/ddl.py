"""Spark's column types: DDL text goes in, the one spelling Spark prints comes out, or why it is no type."""

from __future__ import annotations

import re
from typing import Final

from noetl.language.grammar.problems import nearest

_PLAIN: Final = {
    "boolean": "boolean", "tinyint": "tinyint", "byte": "tinyint", "smallint": "smallint", "short": "smallint",
    "int": "int", "integer": "int", "bigint": "bigint", "long": "bigint", "float": "float", "real": "float",
    "double": "double", "string": "string", "binary": "binary", "date": "date", "timestamp": "timestamp",
    "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz", "variant": "variant",
    "decimal": "decimal(10,0)", "dec": "decimal(10,0)", "numeric": "decimal(10,0)",
}  # fmt: skip
_NAMES: Final = (*_PLAIN, "char", "varchar", "array", "map", "struct")
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z_]\w*|[0-9]+|[<>(),:])")
_DIGITS: Final = 38
_DEEPEST: Final = 32


class NotAType(ValueError):
    """The text is no type; the message says why and what to write."""


def spelled(text: str) -> str:
    """Return a type as Spark prints it: `array<integer>` is `array<int>`, `decimal` is `decimal(10,0)`."""
    reader = _Reader(text)
    found = reader.type(0)
    if reader.rest():
        raise NotAType("it goes on where the type ends")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise NotAType("it holds a sign that belongs to no type")
            self._tokens.append(match[1])
            at = match.end()
        self._at = 0

    def rest(self) -> bool:
        return self._at < len(self._tokens)

    def type(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise NotAType(f"it is nested deeper than {_DEEPEST} levels")
        name = self._next("a type").lower()
        if name == "array":
            self._expect("<")
            inner = self.type(depth + 1)
            self._expect(">")
            return f"array<{inner}>"
        if name == "map":
            self._expect("<")
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            return f"map<{key},{value}>"
        if name == "struct":
            return self._struct(depth)
        if name in ("decimal", "dec", "numeric", "char", "varchar") and (self._peek() == "(" or "char" in name):
            return self._sized(name)
        if name in _PLAIN:
            return _PLAIN[name]
        close = nearest(name, _NAMES)
        raise NotAType(f"there is no type {name}" + (f", did you mean {close}?" if close else ""))

    def _struct(self, depth: int) -> str:
        self._expect("<")
        fields: list[str] = []
        while self._peek() != ">":
            if fields:
                self._expect(",")
            name = self._next("a field")
            if self._peek() == ":":
                self._expect(":")
            fields.append(f"{name.strip('`').replace('``', '`')}:{self.type(depth + 1)}")
        self._expect(">")
        return f"struct<{','.join(fields)}>"

    def _sized(self, name: str) -> str:
        self._expect("(")
        sizes = [self._number()]
        if "char" not in name:
            sizes.append(0)
            if self._peek() == ",":
                self._expect(",")
                sizes[1] = self._number()
        self._expect(")")
        if "char" in name:
            if sizes[0] < 1:
                raise NotAType("its length must be at least 1")
            return f"{name}({sizes[0]})"
        if not 1 <= sizes[0] <= _DIGITS or sizes[1] > sizes[0]:
            raise NotAType(f"a decimal has 1 to {_DIGITS} digits, of which the second number stands behind the point")
        return f"decimal({sizes[0]},{sizes[1]})"

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdecimal() or len(word) > 9:
            raise NotAType("a number must stand in its brackets")
        return int(word)

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self.rest() else None

    def _next(self, wanted: str) -> str:
        if not self.rest():
            raise NotAType(f"{wanted} is missing at its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise NotAType(f"a {sign} is missing")
        self._at += 1
