"""The parts of the schema's SQL that name columns of the envelope, each as the items of a list. Values only.

`tools/schema_source.py` writes them into the files of the schema.
"""

from __future__ import annotations

from typing import Final

from noetl.model.envelope.columns import DRAFT_COLUMNS, EVENT_COLUMNS, INLINE_FIELDS, Column
from noetl.model.event import INLINE_LIMIT

_NAME_WIDTH: Final = max(len(column.name) for column in EVENT_COLUMNS)
_GIVEN: Final = frozenset(column.name for column in EVENT_COLUMNS if column.given_by != "producer")
_NUMBERED: Final = frozenset({"position", "stream_version", "ingest_time", "shard"})


def table_columns() -> tuple[str, ...]:
    """Return the definitions of the columns of `noetl.event`."""
    return tuple(f"{column.name:{_NAME_WIDTH}} {_definition(column)}" for column in EVENT_COLUMNS)


def _definition(column: Column) -> str:
    collation = ' COLLATE "C"' if column.bytewise else ""
    return f"{column.sql}{collation}{' NOT NULL' if column.required else ''}"


def size_check() -> str:
    """Return the condition that holds rows of `noetl.event` to the limit of data an event may carry itself."""
    return " + ".join(f"coalesce(octet_length({name}::text), 0)" for name in INLINE_FIELDS) + f" <= {INLINE_LIMIT}"


def new_event_attributes() -> tuple[str, ...]:
    """Return the attributes of the type `noetl.new_event`: where in a call an event stands, and the row of its draft."""
    return ("append integer", "ordinal integer", *(f"{column.name} {column.sql}" for column in DRAFT_COLUMNS))


def insert_columns() -> tuple[str, ...]:
    """Return the columns that an INSERT into `noetl.event` or `noetl.pending_event` names."""
    return tuple(column.name for column in EVENT_COLUMNS)


def insert_values(row: str, *, whole: bool = False, **given: str) -> tuple[str, ...]:
    """Return the values for `insert_columns`, read from `row` except those that are given as expressions.

    A `noetl.new_event` has only what a producer says, so all the rest must be given. A `whole` row is a `noetl.event`
    itself; of that only what the ledger numbers must be given. What a producer says may be given as well, to check it
    on its way.
    """
    must = _NUMBERED if whole else _GIVEN
    names = insert_columns()
    if missing := must - given.keys():
        raise ValueError(f"expressions are missing for {', '.join(sorted(missing))}")
    if unknown := given.keys() - set(names):
        raise ValueError(f"events have no columns {', '.join(sorted(unknown))}")
    return tuple(given.get(name, f"{row}.{name}") for name in names)
