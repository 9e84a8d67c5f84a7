"""Formats: a format's text and its values go in; an error comes out if what it makes would be too large.

Both kinds of format are read once from left to right, as Python reads them: a pattern that looks for a width from every
sign on takes the square of the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from noetl.playbook.bounds.meter import spend
from noetl.playbook.bounds.weights import bounded_size, text_size

_WIDTH_DIGITS: Final = 6
_TOO_WIDE: Final = "the width in the format is too large or taken from a value"
_AFTER_SIGN: Final = re.compile(r"[-+ #0]*(\d*|\*)(?:\.(\d*|\*))?")
_FIELD: Final = re.compile(r"\{([^{}]*)(\{?)")
_NUMBER: Final = re.compile(r"\d+")
_LONG_NUMBER: Final = re.compile(rf"\d{{{_WIDTH_DIGITS},}}")


def refuse_wide_percent(text: str, values: Any) -> None:
    """Raise if `text % values` has a field of great width, or makes too much text."""
    fields, wide, named, at = 0, 0, False, text.find("%")
    while at >= 0:
        spend(1)
        at += 1
        if text.startswith("(", at):
            named, end = True, _key_end(text, at)
            if end < 0:
                break  # Python says what is wrong with it
            at = end
        found = _AFTER_SIGN.match(text, at)
        assert found is not None, "every part of the pattern may be empty"
        if any(part and (part == "*" or len(part) >= _WIDTH_DIGITS) for part in found.groups()):
            raise OverflowError(_TOO_WIDE)
        wide += sum(int(part) for part in found.groups() if part)
        fields += not text.startswith("%", found.end())
        at = text.find("%", found.end() + 1)
    given = values.values() if isinstance(values, Mapping) else values if isinstance(values, tuple) else (values,)
    # Without names each value is written once, in its turn.
    _refuse_large(len(text) + wide, fields if named else 1, given)


def _key_end(text: str, at: int) -> int:
    """Return where a format goes on after a name in parentheses; -1 if the name does not end."""
    depth = 0
    for mark in re.compile(r"[()]").finditer(text, at):
        spend(1)
        depth += 1 if mark[0] == "(" else -1
        if depth == 0:
            return mark.end()
    return -1


def refuse_wide_fields(text: str, values: Iterable[Any]) -> None:
    """Raise if `text.format(...)` has a field of great width, or makes too much text."""
    fields = wide = 0
    for found in _FIELD.finditer(text):
        spend(1)
        fields += 1
        _, colon, width = found[1].partition(":")
        if colon and (found[2] or _LONG_NUMBER.search(width)):
            raise OverflowError(_TOO_WIDE)
        wide += sum(map(int, _NUMBER.findall(width)))
    _refuse_large(len(text) + wide, fields, values)


def _refuse_large(length: int, times: int, values: Iterable[Any]) -> None:
    sizes = [text_size(value) for value in values]
    # A text that is written once may be as long as the longest; one that is written again is counted as often.
    most = sum(sizes) if times <= 1 else times * max(sizes, default=0)
    bounded_size(length + most)
