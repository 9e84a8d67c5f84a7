"""How many steps a value costs whoever reads all of it: text by its length, a container by everything in it.

A list that stands in another twice is read twice, so values that share their parts cost what they come to as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any, Final

from noetl.language.templates.bounds.meter import spend
from noetl.language.templates.result_view import View

OUTPUT_MAX: Final = 16 * 1024 * 1024
"""Characters of a text, or items of a list, at most."""
TOO_LARGE: Final = f"the value is larger than {OUTPUT_MAX} characters or items"
NUMBER_MAX_BITS: Final = 65_536

LIGHT: Final = frozenset({int, float, bool, type(None)})
_CONTAINER: Final = 3
_SHORT: Final = 64
_TEXT: Final = 4
"""Sixteen characters of text are a step."""


def charge(value: Any) -> Any:
    """Pay for reading all of a value, and return it."""
    kind = type(value)
    if kind is str:
        if len(value) > _SHORT:
            spend(len(value) >> _TEXT)
    elif kind not in LIGHT:
        weigh(value)
    return value


def charge_items(value: Any) -> Any:
    """Pay for copying a value, without what its items hold, and return it."""
    if isinstance(value, str | bytes):
        spend(1 + (len(value) >> _TEXT))
    elif isinstance(value, Sized):
        spend(1 + len(value))
    return value


def weigh(value: Any) -> int:
    """Pay for reading all of a value, and return the price."""
    paid = 0
    open_parts = [value]
    while open_parts:
        part = open_parts.pop()
        if type(part) is View:
            part = part.value
        if type(part) is dict:
            items: Any = part.values()
            characters = sum([len(key) for key in part if type(key) is str])
        elif isinstance(part, list | tuple | set | frozenset):
            items, characters = part, 0
        else:
            alone = _alone(part)
            spend(alone)
            paid += alone
            continue
        # Paid first: what comes out of it is put aside, and that takes memory.
        spend(_CONTAINER + len(part))
        for item in items:
            kind = type(item)
            if kind is str:
                characters += len(item)
            elif kind not in LIGHT:
                open_parts.append(item)
        spend(characters >> _TEXT)
        paid += _CONTAINER + len(part) + (characters >> _TEXT)
    return paid


def _alone(value: Any) -> int:
    """Return what a value costs that is no plain container. Mappings that make their entries are not asked for them."""
    if isinstance(value, str | bytes):
        return 1 + (len(value) >> _TEXT)
    if isinstance(value, Mapping | range | type({}.keys()) | type({}.values()) | type({}.items())):
        return 1 + len(value)
    return 1


def text_size(value: Any) -> int:
    """Return at least how many characters a value has as text, having paid for looking."""
    charge(value)
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3 + 2
    if isinstance(value, list | tuple | dict | set | frozenset | View):
        return len(str(value))
    return _SHORT


def bounded(value: Any) -> Any:
    """Return a value unless it is too large to go on with."""
    if isinstance(value, str | bytes | list | tuple):
        if len(value) > OUTPUT_MAX:
            raise OverflowError(TOO_LARGE)
    elif type(value) is int:
        bounded_number(value.bit_length())
    return value


def bounded_size(size: int) -> None:
    """Raise if a text or list of this size would be too large."""
    if size > OUTPUT_MAX:
        raise OverflowError(TOO_LARGE)


def bounded_number(bits: int) -> None:
    """Raise if a number of so many bits would be too large."""
    if bits > NUMBER_MAX_BITS:
        raise OverflowError(f"the number is longer than {NUMBER_MAX_BITS} bits")


def bounded_width(*widths: Any) -> Any:
    """Return the first width unless one of them is too large."""
    for width in widths:
        if isinstance(width, int) and width > 100_000:
            raise OverflowError("the width is larger than 100000")
    return widths[0] if widths else None
