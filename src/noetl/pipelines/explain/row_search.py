"""Finds rows of a dataset and the file each lies in: files and conditions go in, a few rows come out. This blocks.

Files that cannot have such rows by their statistics are not opened; the others are looked through some at a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from noetl.errors import InputError
from noetl.model.dataset import Field
from noetl.pipelines.datasets.dataset_reader import PartitionFile
from noetl.pipelines.datasets.export import local_copies
from noetl.pipelines.datasets.scratch import own_scratch
from noetl.pipelines.explain.conditions import Condition, may_hold
from noetl.pipelines.tables.lake_files import LakeFiles

_TOGETHER: Final = 32
_PLACE: Final = "__noetl_row"
_READ: Final = "read_parquet(?, file_row_number = true, hive_partitioning = false)"


class FoundRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row, and where it is."""

    values: dict[str, Any]
    file: PartitionFile
    place: int
    """Its number within the file, from 0."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and how much was looked at for it."""

    rows: tuple[FoundRow, ...]
    files: int
    opened: int
    more: bool
    """Whether there are more such rows than were asked for."""


def search(
    files: LakeFiles,
    parts: Sequence[PartitionFile],
    schema: Sequence[Field],
    conditions: Sequence[Condition],
    most: int,
) -> Found:
    """Return up to `most` rows that meet all conditions, in the order of the files."""
    possible = [part for part in parts if may_hold(part.entry, conditions, schema)]
    found: list[FoundRow] = []
    opened = 0
    with own_scratch("noetl-explain-") as scratch, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for start in range(0, len(possible), _TOGETHER):
            some = possible[start : start + _TOGETHER]
            paths = local_copies(files, some, scratch / str(start))
            for part, path in zip(some, paths, strict=True):
                opened += 1
                found += _in_file(connection, part, path, conditions, most + 1 - len(found))
                if len(found) > most:
                    return Found(rows=tuple(found[:most]), files=len(parts), opened=opened, more=True)
    return Found(rows=tuple(found), files=len(parts), opened=opened, more=False)


def _in_file(
    connection: duckdb.DuckDBPyConnection,
    part: PartitionFile,
    path: Path,
    conditions: Sequence[Condition],
    most: int,
) -> list[FoundRow]:
    # Signs that a path may have and that DuckDB would take for a pattern.
    named = re.sub(r"([*?\[])", r"[\1]", str(path))
    described = connection.execute(f"DESCRIBE SELECT * FROM {_READ}", [named]).fetchall()  # noqa: S608 - a constant
    types = {row[0]: row[1] for row in described if row[0] != "file_row_number"}
    if any(one.column not in types for one in conditions if one.operator != "IS NULL"):
        return []
    asked = [_spelled(one, types) for one in conditions if one.column in types]
    columns = ", ".join(_quoted(name) for name in types)
    where = " AND ".join(text for text, _ in asked) or "true"
    query = f"""SELECT {columns}, file_row_number AS {_PLACE} FROM {_READ}
        WHERE {where} ORDER BY {_PLACE} LIMIT {most:d}"""  # noqa: S608 - quoted names and places for values
    values = [value for _, some in asked for value in some]
    try:
        table: pa.Table = connection.sql(query, params=[named, *values]).to_arrow_table()
    except duckdb.ConversionException as problem:
        told = str(problem).splitlines()[0].removeprefix("Conversion Error: ")
        raise InputError(f"a value does not fit its column: {told}") from problem
    return [FoundRow(place=row.pop(_PLACE), values=row, file=part) for row in table.to_pylist()]


def _spelled(one: Condition, types: dict[str, str]) -> tuple[str, list[str]]:
    """Return a condition with places for its values, each read as the column's type."""
    column, value = _quoted(one.column), f"CAST(? AS {types[one.column]})"
    match one.operator:
        case "IN":
            return f"{column} IN ({', '.join([value] * len(one.values))})", list(one.values)
        case "BETWEEN":
            return f"{column} BETWEEN {value} AND {value}", list(one.values)
        case "IS NULL" | "IS NOT NULL":
            return f"{column} {one.operator}", []
        case _:
            return f"{column} {one.operator} {value}", list(one.values)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
