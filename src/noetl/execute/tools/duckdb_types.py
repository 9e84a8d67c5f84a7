"""Which columns of a DuckDB result have a type that JSON cannot tell: its description goes in, types of datasets come out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TOLD: Final = {
    "BLOB": "binary",
    "DATE": "date",
    "DOUBLE": "double",
    "FLOAT": "float",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMP_MS": "timestamp_ntz",
    "TIMESTAMP_S": "timestamp_ntz",
}
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT.*[+-]\d\d:\d\d")


def types_of(
    description: Iterable[Sequence[Any]], rows: Sequence[Mapping[str, Any]], texts: Collection[str]
) -> dict[str, str]:
    """Return the types by column; `texts` are those that were cast to text, which moments with a zone are."""
    found = {str(name): _told(str(kind)) for name, kind, *_ in description}
    for name in texts:
        values = [row[name] for row in rows if row[name] is not None]
        if values and all(isinstance(value, str) and _MOMENT.fullmatch(value) for value in values):
            found[name] = "timestamp"
    return {name: told for name, told in found.items() if told is not None}


def _told(kind: str) -> str | None:
    if kind.endswith("[]"):
        inner = _told(kind.removesuffix("[]"))
        return None if inner is None else f"array<{inner}>"
    digits = _DECIMAL.fullmatch(kind)
    return _TOLD.get(kind) if digits is None else f"decimal({digits[1]},{digits[2]})"
