"""Which columns of a result have a type that JSON cannot tell: what the server says of them goes in, types of datasets come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_TOLD: Final = {
    "numeric": "decimal",
    "float4": "float",
    "float8": "double",
    "int8": "bigint",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
"""Numbers of digits are not told: a reader finds them in the values."""


def types_of(attributes: Iterable[Any]) -> dict[str, str]:
    """Return the types by column; texts, flags, small integers, JSON and what datasets keep as text have none."""
    found = {attribute.name: _told(attribute.type) for attribute in attributes}
    return {name: told for name, told in found.items() if told is not None}


def needed(types: dict[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return those that the values of these rows do not tell: an integer says that it is one unless it is too large."""
    if "bigint" not in types.values():
        return types
    return {
        name: told
        for name, told in types.items()
        if told != "bigint" or not all(type(row.get(name)) is int for row in rows)
    }


def _told(kind: Any) -> str | None:
    if kind.schema != "pg_catalog":
        return None
    name = _TOLD.get(kind.name.removesuffix("[]"))
    return f"array<{name}>" if name is not None and kind.kind == "array" else name
