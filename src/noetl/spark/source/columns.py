"""The columns of an event in Spark and in Arrow: every field of `Event`, in its order. Values only.

Ids are 64-bit integers, times are UTC with microseconds, and JSON fields are their text as the ledger holds it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from noetl.ledger.rows import ACCEPTED_COLUMNS, JSON_COLUMNS
from noetl.model.event import ID_FIELDS, TIME_FIELDS, Draft

NAMES: Final = (*Draft.__struct_fields__, *ACCEPTED_COLUMNS)
"""The fields of an event, as Spark's columns are ordered."""

LONGS: Final = ID_FIELDS | {"current_index", "stream_version", "position"}
INTEGERS: Final = frozenset({"schema_version", "shard"})
TIMES: Final = TIME_FIELDS
JSON: Final = frozenset(JSON_COLUMNS)
NEVER_UPCAST: Final = frozenset(
    {"event_id", "tenant_id", "organization_id", "execution_id", "stream_id", "stream_version", "shard", "position", "schema_name"}
)  # fmt: skip
"""What no upcaster may change, so that it means the same before and after."""


def _spark_type(name: str) -> str:
    if name in LONGS:
        return "bigint"
    if name in INTEGERS:
        return "int"
    return "timestamp" if name in TIMES else "string"


_ARROW: Final = {"bigint": pa.int64(), "int": pa.int32(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string()}
_POSTGRES: Final = {"bigint": "bigint", "int": "integer", "timestamp": "timestamptz", "string": "text"}

SPARK_TYPES: Final = {name: _spark_type(name) for name in NAMES}
"""The types of the columns as Spark prints them."""
EVENT_COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in SPARK_TYPES.items())
"""The columns as Spark's DDL."""
ARROW_SCHEMA: Final = pa.schema([(name, _ARROW[kind]) for name, kind in SPARK_TYPES.items()])
"""The columns as Arrow has them, the form in which rows travel."""
POSTGRES_TYPES: Final = {name: _POSTGRES[kind] for name, kind in SPARK_TYPES.items()}
"""The types that values compared with columns have in PostgreSQL."""


def selected(names: tuple[str, ...]) -> str:
    """Return the select list that gives columns in the types of `ARROW_SCHEMA`."""
    return ", ".join(f"{name}::{POSTGRES_TYPES[name]}" if name in JSON | INTEGERS else name for name in names)
