"""Times as people write them: text such as 30s or 5m goes in, seconds come out."""

from __future__ import annotations

import math
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str) -> float:
    """Return a time in seconds; a bare number is seconds already, and `never` has no end."""
    if text == "never":
        return math.inf
    for unit, seconds in _UNITS.items():
        number = text.removesuffix(unit)
        if number != text and number[-1:].isdecimal():
            return float(number) * seconds
    return float(text)
