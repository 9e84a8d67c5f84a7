"""The first rows of a dataset: its files and conditions go in, a small table comes out. Reads no more than it needs."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from noetl.errors import InputError
from noetl.model.dataset import FileEntry
from noetl.pipelines.datasets.dataset_reader import PartitionFile
from noetl.pipelines.tables.lake_files import LakeFiles

_SEARCHED_ROWS: Final = 65_536
"""Rows looked through at a time where only some are wanted."""

Wanted = Mapping[str, pa.Array]
"""Of each column the values that are wanted."""


def wanted_values(given: Sequence[str], schema: pa.Schema) -> Wanted:
    """Read conditions of the form COLUMN=VALUE; of one column given twice either value will do."""
    texts: dict[str, list[str]] = {}
    for one in given:
        column, equals, value = one.partition("=")
        if not equals:
            raise InputError(f"{one!r} is no condition", hint="write it as COLUMN=VALUE")
        if column not in schema.names:
            raise InputError(
                f"there is no column {column!r}", hint=f"there are {', '.join(schema.names) or 'none yet'}"
            )
        texts.setdefault(column, []).append(value)
    return {column: _typed(column, values, schema.field(column).type) for column, values in texts.items()}


def first_rows(
    files: LakeFiles, parts: Sequence[PartitionFile], schema: pa.Schema, wanted: Wanted, count: int
) -> pa.Table:
    """Return up to `count` rows in the order of the files; this blocks."""
    found: list[pa.Table] = []
    missing = count
    for rows in _candidates(files, parts, schema, wanted, count):
        matching = _matching(rows, wanted)[:missing]
        found.append(matching)
        missing -= matching.num_rows
        if missing <= 0:
            break
    return pa.concat_tables(found) if found else schema.empty_table()


def json_value(value: Any) -> Any:
    """Return a value as JSON knows it: numbers that JSON lacks, times and bytes as text."""
    match value:
        case None | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(name): json_value(one) for name, one in value.items()}
        case list() | tuple():
            return [json_value(one) for one in value]
        case _:
            return str(value)


def _candidates(
    files: LakeFiles, parts: Sequence[PartitionFile], schema: pa.Schema, wanted: Wanted, count: int
) -> Iterator[pa.Table]:
    for part in parts:
        if _may_hold(part.entry, wanted):
            yield from files.batches(part.entry, schema, _SEARCHED_ROWS if wanted else max(count, 1))


def _may_hold(entry: FileEntry, wanted: Wanted) -> bool:
    """Tell whether a file can have such rows: what lies outside of a column's least and greatest value is not there."""
    for column, allowed in wanted.items():
        stats = entry.stats.get(column, {})
        exact = pa.types.is_string(allowed.type) or pa.types.is_integer(allowed.type)
        if exact and "min" in stats and not any(stats["min"] <= one <= stats["max"] for one in allowed.to_pylist()):
            return False
    return entry.rows > 0


def _matching(rows: pa.Table, wanted: Wanted) -> pa.Table:
    for column, allowed in wanted.items():
        rows = rows.filter(pc.is_in(rows.column(column), allowed))
    return rows


def _typed(column: str, values: list[str], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"column {column!r} is of type {kind} and cannot be {' or '.join(values)}") from None
