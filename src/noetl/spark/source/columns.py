"""The columns of an event in Spark and in Arrow: every field of `Event`, in its order. Values only.

Ids are 64-bit integers, times are UTC with microseconds, and JSON fields are their text as the ledger holds it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from noetl.model.event import FIELDS, FIXED_FIELDS, JSON_FIELDS

NAMES: Final = tuple(FIELDS)
"""The fields of an event, as Spark's columns are ordered."""
JSON: Final = frozenset(JSON_FIELDS)
NEVER_UPCAST: Final = frozenset(FIXED_FIELDS)
"""What no upcaster may change, so that it means the same before and after."""

_SPARK: Final = {
    "bigint": "bigint",
    "integer": "int",
    "smallint": "int",
    "timestamptz": "timestamp",
    "text": "string",
    "json": "string",
}
_ARROW: Final = {"bigint": pa.int64(), "int": pa.int32(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string()}
_POSTGRES: Final = {"bigint": "bigint", "int": "integer", "timestamp": "timestamptz", "string": "text"}

SPARK_TYPES: Final = {name: _SPARK[field.kind.sql] for name, field in FIELDS.items()}
"""The types of the columns as Spark prints them."""
EVENT_COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in SPARK_TYPES.items())
"""The columns as Spark's DDL."""
ARROW_SCHEMA: Final = pa.schema([(name, _ARROW[kind]) for name, kind in SPARK_TYPES.items()])
"""The columns as Arrow has them, the form in which rows travel."""
POSTGRES_TYPES: Final = {name: _POSTGRES[kind] for name, kind in SPARK_TYPES.items()}
"""The types that values compared with columns have in PostgreSQL."""
_CAST: Final = frozenset(name for name, kind in POSTGRES_TYPES.items() if kind != FIELDS[name].kind.sql)


def selected(names: tuple[str, ...]) -> str:
    """Return the select list that gives columns in the types of `ARROW_SCHEMA`."""
    return ", ".join(f"{name}::{POSTGRES_TYPES[name]}" if name in _CAST else name for name in names)
