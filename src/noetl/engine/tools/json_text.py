"""JSON text in and out for the tools: numbers too big for a double stay exact, as text, and nothing is rounded."""

from __future__ import annotations

import json
from typing import Any

import orjson

from noetl.engine.tools.plain import plain

# Every digit becomes a zero, so that a long number is found by a plain search.
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 16


def read_json(text: bytes) -> Any:
    """Return the plain values of a JSON text; ValueError when it is none."""
    value = orjson.loads(text)
    # Only such a text can hold what plain values do not have, so all others are spared the walk.
    return plain(json.loads(text)) if _LONG_NUMBER in text.translate(_ALIKE) else value


def write_json(value: Any) -> bytes:
    """Return the JSON text of plain values."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(plain(value))
