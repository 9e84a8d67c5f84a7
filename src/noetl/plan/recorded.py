"""A value as the ledger gives it back: what is decided on now is what a replay decides on later."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.errors import TemplateFailed
from noetl.model.canonical import exact_json

_decode = msgspec.json.Decoder().decode


def recorded(value: Any, where: str) -> Any:
    """Return the value after a round trip through canonical JSON; what JSON cannot carry is refused, naming the place."""
    if value is None or type(value) in (str, bool):
        return value
    return _decode(_encoded(value, where))


def refuse_unrecordable(value: Any, where: str) -> None:
    """Raise TemplateFailed for a value that JSON cannot carry."""
    _encoded(value, where)


def _encoded(value: Any, where: str) -> bytes:
    try:
        return exact_json(value)
    except (TypeError, ValueError) as problem:
        raise TemplateFailed(f"{where}: the value cannot be recorded: {problem}", where=where) from None
