"""Files an attempt has written go in, files without a second row of any key come out.

Rows are compared after they were written, by their key columns alone: the usual case, nothing twice, moves no row.
Few rows are compared in this process, many by Spark. Of equal keys the first by full row order stays, nulls first;
a key that stands in the partition already wins over every new row of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from noetl.errors import InputError
from noetl.model.dataset import Field, FileEntry
from noetl.model.task import PartitionWrite, TaskTarget
from noetl.spark.lake.executor_rows import Place
from noetl.spark.lake.parquet_files import in_parallel, read_table, write_table
from noetl.spark.lake.reader import files_frame, merged_schema, struct_of
from noetl.spark.lake.storage import Lake, commit_directory, fresh_mark
from noetl.spark.lake.writer import write_output

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FEW_ROWS: Final = 200_000
_COMPARED_HERE: Final = ("tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "boolean", "decimal")
_ORDERED_TEXT: Final = ("string", "date", "timestamp")
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")


def unique_write(
    session: SparkSession,
    write: PartitionWrite,
    standing: Sequence[FileEntry],
    standing_schema: Sequence[Field],
    target: TaskTarget,
    place: Place,
    lake: Lake,
    *,
    few: int = FEW_ROWS,
) -> PartitionWrite:
    """Return a write whose rows have keys that are unique among themselves and not in the files that stand already."""
    key = target.unique_key
    types = {one.name: one.type for one in write.schema}
    for name in key:
        if name not in types:
            raise InputError(
                f"unique_key of output {target.output} names the column {name!r}, but the job returns only "
                f"{', '.join(types)}"
            )
    if not write.files:
        return write
    near = [entry for entry in standing if _may_meet(entry, write.files, key, types)]
    rows = sum(entry.rows for entry in (*write.files, *near))
    if rows <= few and all(types[name].startswith(_COMPARED_HERE) for name in key):
        return _unique_here(write, near, key, place, target, lake)
    return _unique_in_spark(session, write, near, standing_schema, key, place, target, lake)


def _may_meet(entry: FileEntry, new: Sequence[FileEntry], key: Sequence[str], types: dict[str, str]) -> bool:
    """Whether a file could hold a key of the new files, as far as their statistics tell."""
    for name in key:
        if not (types[name] in _NUMBERS or types[name] in _ORDERED_TEXT):
            continue
        mine, others = entry.stats.get(name, {}), [one.stats.get(name, {}) for one in new]
        if any("min" not in stats or stats.get("nulls") != 0 for stats in (mine, *others)):
            continue
        if mine["max"] < min(one["min"] for one in others) or mine["min"] > max(one["max"] for one in others):
            return False
    return True


def _unique_here(
    write: PartitionWrite, near: Sequence[FileEntry], key: Sequence[str], place: Place, target: TaskTarget, lake: Lake
) -> PartitionWrite:
    kept = {one for keys in in_parallel(lambda entry: _keys(lake, entry, key), near) for one in keys}
    places: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for file, keys in enumerate(in_parallel(lambda entry: _keys(lake, entry, key), write.files)):
        for row, one in enumerate(keys):
            places[one].append((file, row))
    doubled = {one: found for one, found in places.items() if len(found) > 1 or one in kept}
    if not doubled:
        return write
    touched = sorted({file for found in doubled.values() for file, _ in found})
    tables = {file: read_table(lake, write.files[file]) for file in touched}
    lost = {
        spot
        for one, found in doubled.items()
        for spot in (found if one in kept else sorted(found, key=lambda spot: _row_order(tables, spot))[1:])
    }
    directory = commit_directory(target.location, write.partition_key, place.task_id, place.attempt, fresh_mark())
    entries = []
    for file, entry in enumerate(write.files):
        if file not in tables:
            entries.append(entry)
            continue
        staying = [row for row in range(entry.rows) if (file, row) not in lost]
        if staying:
            path = f"{directory}/part-{file:05d}.parquet"
            entries.append(write_table(lake, path, tables[file].take(pa.array(staying))))
    return msgspec.structs.replace(write, files=tuple(entries))


def _keys(lake: Lake, entry: FileEntry, key: Sequence[str]) -> list[tuple[Any, ...]]:
    table = read_table(lake, entry, key)
    columns = [table.column(name).to_pylist() if name in table.column_names else [None] * entry.rows for name in key]
    return list(zip(*columns, strict=True))


def _row_order(tables: dict[int, pa.Table], spot: tuple[int, int]) -> tuple[Any, ...]:
    file, row = spot
    values = tables[file].slice(row, 1).to_pylist()[0].values()
    return tuple((value is not None, _comparable(value)) for value in values)


def _comparable(value: Any) -> Any:
    if value is None:
        return 0
    return repr(value) if isinstance(value, list | dict) else value


def _unique_in_spark(
    session: SparkSession,
    write: PartitionWrite,
    near: Sequence[FileEntry],
    standing_schema: Sequence[Field],
    key: Sequence[str],
    place: Place,
    target: TaskTarget,
    lake: Lake,
) -> PartitionWrite:
    new = files_frame(session, write.schema, [(entry, 0) for entry in write.files], lake)
    schema = [
        one for one in merged_schema([standing_schema or write.schema, write.schema], "the output") if one.name in key
    ]
    old = files_frame(session, schema, [(entry, 0) for entry in near], lake).select(*map(_quoted, key))
    if not _has_doubles(new, old, key):
        return write
    ordered = [_orderable(one.name, one.dataType) for one in struct_of(write.schema)]
    ranked = Window.partitionBy(*map(_quoted, key)).orderBy(*ordered)
    first = new.withColumn("__noetl_rank", F.row_number().over(ranked)).filter("__noetl_rank = 1").drop("__noetl_rank")
    fresh = first.alias("new").join(old.alias("old"), _same_key(key), "left_anti")
    alone = msgspec.structs.replace(target, partition_by=(), declared=(), schema=write.schema)
    here = Place(place.task_id, place.attempt, write.partition_key)
    (made,) = write_output(fresh, alone, here, lake, types={})
    return msgspec.structs.replace(write, files=made.files)


def _has_doubles(new: DataFrame, old: DataFrame, key: Sequence[str]) -> bool:
    names = [_quoted(name) for name in key]
    both = new.select(*names, F.lit(1).alias("__noetl_new")).unionAll(old.select(*names, F.lit(0)))
    counted = both.groupBy(*names).agg(F.sum("__noetl_new").alias("__noetl_new"), F.count("*").alias("__noetl_all"))
    return bool(counted.filter("__noetl_all > 1 and __noetl_new > 0").limit(1).collect())


def _same_key(key: Sequence[str]) -> Column:
    return reduce(
        lambda one, other: one & other, (F.col(f"new.`{name}`").eqNullSafe(F.col(f"old.`{name}`")) for name in key)
    )


def _orderable(name: str, kind: DataType) -> Column:
    column = F.col(_quoted(name))
    nested = isinstance(kind, ArrayType | MapType | StructType | VariantType)
    return (F.to_json(F.struct(column)) if nested else column).asc_nulls_first()


def _quoted(name: str) -> str:
    return f"`{name}`"
