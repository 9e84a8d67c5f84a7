"""Arithmetic, comparisons, method calls and formats: refused in advance if the result is too large, else charged for.

Formats are read once from left to right, as Python reads them: a pattern that searched for a width after every sign
would take quadratic time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from noetl.language.templates.bounds.meter import CALL, counted, spend
from noetl.language.templates.bounds.weights import (
    LIGHT,
    bounded,
    bounded_number,
    bounded_size,
    bounded_width,
    charge,
    text_size,
    weigh,
)

_SEQUENCES: Final = (str, bytes, list, tuple)

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def arithmetic(symbol: str, left: Any, right: Any) -> Any:
    """Apply a binary operator, refusing beforehand what would take up too much memory or time."""
    if isinstance(left, int) and isinstance(right, int):
        if symbol == "*":
            bounded_number(left.bit_length() + right.bit_length())
        elif symbol == "**":
            bounded_number(left.bit_length() * right)
    elif type(left) not in LIGHT or type(right) not in LIGHT:
        _pay_for(symbol, left, right)
    return bounded(OPERATORS[symbol](left, right))


def _pay_for(symbol: str, left: Any, right: Any) -> None:
    if symbol == "*":
        for many, count in ((left, right), (right, left)):
            if isinstance(count, int) and isinstance(many, _SEQUENCES):
                bounded_size(len(many) * count)
                if isinstance(many, str | bytes):
                    spend(1 + (len(many) * max(count, 0) >> 4))
                else:
                    spend(weigh(many) * max(count, 0))
        return
    if symbol == "%" and isinstance(left, str):
        charge(left)
        refuse_wide_percent(left, right)
        return
    if symbol == "+" and isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        bounded_size(len(left) + len(right))
    charge(left)
    charge(right)


def refuse_spread(text: Any, old: Any = None, new: Any = None, *_: Any) -> None:
    """Raise if replacing one part of a text by another would make too much of it."""
    kinds = (str, bytes)
    if not (isinstance(text, kinds) and isinstance(old, kinds) and isinstance(new, kinds)):
        return
    # Counting reads the whole text, so only when the worst case is too large.
    if type(text) is type(old) and (len(text) + 1) * len(new) > 1 << 20:
        bounded_size(text.count(old) * len(new))  # type: ignore[arg-type]


def joined_size(separator: Any, parts: list[Any]) -> None:
    """Raise if parts that are joined by a separator would make too much text."""
    bounded_size(text_size(separator) * max(len(parts) - 1, 0) + sum(map(text_size, parts)))


_CHEAP_METHODS: Final = frozenset({"get", "keys", "values", "items", "next", "startswith", "endswith"})
"""Methods whose price does not depend on how much they are asked of."""
_PADDING: Final = frozenset({"center", "ljust", "rjust", "zfill", "to_bytes", "expandtabs"})
_CUTTING: Final = frozenset({"split", "rsplit", "splitlines"})


def pay_for_call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Refuse a call that would make too much, pay for one that would not, and return its arguments."""
    spend(CALL + len(args) + len(kwargs))
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if name in {"format", "format_map"}:
        # The sandbox has put its own function in place of the text's.
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", owner)
    if name == "changed":
        charge(args)  # a loop compares them with those of its last turn
    if name in _CHEAP_METHODS or not isinstance(owner, str | bytes | list | tuple | dict | int | type):
        return args
    charge(owner)
    if name in _PADDING:
        bounded_width(*(argument for argument in (*args, *kwargs.values()) if isinstance(argument, int)))
    if isinstance(owner, str | bytes):
        return _pay_for_text(name, owner, args, kwargs)
    charge(args)
    return args


def _pay_for_text(name: str, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    if name == "format":
        refuse_wide_fields(owner, (*args, *kwargs.values()))
    elif name == "format_map" and args and isinstance(args[0], Mapping):
        refuse_wide_fields(owner, args[0].values())
    elif name == "replace":
        refuse_spread(owner, *args)
    elif name == "join" and len(args) == 1 and not isinstance(args[0], str | bytes):
        args = (list(counted(args[0])),)
        joined_size(owner, args[0])
    elif name == "translate" and args and isinstance(args[0], Mapping):
        bounded_size(len(owner) * max(map(text_size, args[0].values()), default=1))
    elif name == "expandtabs":
        size = next(iter((*args, *kwargs.values())), 8)
        bounded_size(len(owner) + owner.count("\t" if isinstance(owner, str) else b"\t") * max(size, 0))
    elif name in _CUTTING:
        spend(len(owner))  # each character may become a text of its own
    else:
        charge(args)
    return args


def searched(value: Any) -> Any:
    """Pay for looking through a value with `in`, and return it."""
    return value if isinstance(value, dict | set | frozenset) else charge(value)


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
