"""Plain YAML scalars by the core schema of YAML 1.2: text goes in, a JSON value comes out. Dates stay text."""

from __future__ import annotations

import math
import re
from typing import Final

from noetl.model.canonical import SAFE_INTEGER

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+")
_PREFIXED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST: Final = 64


class CannotCarryError(Exception):
    """A scalar that JSON has no exact value for; the message says why."""


def resolve(text: str) -> str | int | float | bool | None:
    """Return the value of a scalar written without quotes."""
    if text in _NULLS:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if _DECIMAL.fullmatch(text):
        return _whole(text, 10)
    if _PREFIXED.fullmatch(text):
        return _whole(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise CannotCarryError("is too large a number")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise CannotCarryError("is a number that JSON does not have")
    return text


def _whole(text: str, base: int) -> int:
    if len(text) > _LONGEST or abs(number := int(text, base)) > SAFE_INTEGER:
        raise CannotCarryError("is a whole number beyond 2^53 - 1, which would be rounded")
    return number
