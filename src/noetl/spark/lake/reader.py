"""Pinned manifests go in, a DataFrame over exactly their files comes out. Nothing is found by listing a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from noetl.errors import InputError
from noetl.model.dataset import Field, FileEntry, Manifest
from noetl.model.task import TaskInput
from noetl.spark.lake.executor_rows import reader
from noetl.spark.lake.integrity.checks import Checks
from noetl.spark.lake.integrity.proofs import proofs_here
from noetl.spark.lake.storage import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VERIFY_PAGES: Final = "parquet.page.verify-checksum.enabled"
"""An option of Parquet's reader, which Spark hands on to it: a page that fails its checksum fails the job."""
_NOTHING_LEFT_OUT: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options that stand over the settings of a session, by which a job would read and commit what is left of its input."""
TASK: Final = "__noetl_task"
"""The hidden column that says which task of a batch a row belongs to."""
_WIDER: Final = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp", "timestamp_ntz"),
}


def frame_of(session: SparkSession, given: TaskInput, manifests: Mapping[str, Manifest], lake: Lake) -> DataFrame:
    """Return the rows of an input as it is pinned, seen through its `where`."""
    schema = input_schema(given, manifests)
    rows = files_frame(session, schema, [(entry, 0) for entry in input_files(given, manifests)], lake)
    return kept_rows(rows, given)


def keyed_frame(
    session: SparkSession, given: Sequence[TaskInput], manifests: Mapping[str, Manifest], lake: Lake
) -> DataFrame:
    """Return the rows of one input of several tasks together, each with its task's index in `TASK`."""
    joined = joined_input(given)
    schema = input_schema(joined, manifests)
    files = [(entry, index) for index, one in enumerate(given) for entry in input_files(one, manifests)]
    return kept_rows(files_frame(session, schema, files, lake, key=TASK), joined)


def joined_input(given: Sequence[TaskInput]) -> TaskInput:
    """Return one input with the parts that several tasks have of it."""
    return msgspec.structs.replace(given[0], parts=tuple(part for one in given for part in one.parts))


def input_files(given: TaskInput, manifests: Mapping[str, Manifest]) -> list[FileEntry]:
    """Return the files a task reads of an input: those of its pinned parts that it has not consumed before."""
    return [
        entry for part in given.parts for entry in manifests[part.manifest.sha256].added_since(part.after) if entry.rows
    ]


def input_schema(given: TaskInput, manifests: Mapping[str, Manifest]) -> tuple[Field, ...]:
    """Return the columns of an input: all that its parts have, in the widest type any of them has."""
    schemas = [manifests[part.manifest.sha256].schema for part in given.parts]
    fields = merged_schema([*([given.schema] if given.schema else []), *schemas], given.alias)
    if not fields:
        raise InputError(
            f"input {given.alias!r} has no rows yet and no known columns: declare a schema for the job that builds it, "
            "or let this job wait for it (wait: all)"
        )
    return fields


def merged_schema(schemas: Sequence[Sequence[Field]], name: str) -> tuple[Field, ...]:
    """Return one schema that rows of all these fit: the longest one's order, new columns after, the wider types."""
    merged: dict[str, Field] = {}
    for schema in sorted({tuple(one) for one in schemas}, key=lambda one: (-len(one), repr(one))):
        for column in schema:
            known = merged.setdefault(column.name, column)
            if known.type != column.type:
                wide = wider(known.type, column.type)
                if wide is None:
                    raise InputError(
                        f"{name!r} has the column {column.name!r} as {known.type} in one partition and as "
                        f"{column.type} in another: rebuild the dataset that holds it"
                    )
                merged[column.name] = Field(column.name, wide)
    return tuple(merged.values())


def wider(one: str, other: str) -> str | None:
    """Return the type that holds every value of both, or none."""
    if one == other or other in _WIDER.get(one, ()):
        return other
    if one in _WIDER.get(other, ()):
        return one
    return None


def files_frame(
    session: SparkSession,
    schema: Sequence[Field],
    files: Sequence[tuple[FileEntry, int]],
    lake: Lake,
    *,
    key: str | None = None,
) -> DataFrame:
    """Return the rows of files, each with its number as column `key` where that is wanted."""
    struct = struct_of(schema)
    if not files:
        empty = session.createDataFrame([], struct)
        return empty if key is None else empty.withColumn(key, F.lit(0))
    if not lake.native:
        return _arrow(session, struct, files, lake, key)  # each executor checks the files it opens
    Checks(lake, proofs_here(lake.root)).unchanged([entry for entry, _ in files])
    return _native(session, struct, files, lake, key)


def struct_of(schema: Sequence[Field]) -> StructType:
    """Return Spark's type of a schema."""
    return StructType([StructField(one.name, DataType.fromDDL(one.type)) for one in schema])


def fields_of(struct: StructType) -> tuple[Field, ...]:
    """Return the schema of Spark's type; whether a column may be null is a promise that only a declaration makes."""
    return tuple(Field(one.name, one.dataType.simpleString()) for one in struct)


def kept_rows(rows: DataFrame, given: TaskInput) -> DataFrame:
    """Return the rows that an input's `where` lets through."""
    for name, wanted in given.where.items():
        if name not in rows.columns:
            raise InputError(
                f"`where` of input {given.alias!r} names the column {name!r}, which it does not have; "
                f"its columns are {', '.join(one for one in rows.columns if one != TASK)}"
            )
        rows = rows.filter(_holds(rows, name, wanted if isinstance(wanted, list | tuple) else [wanted]))
    return rows


def _holds(rows: DataFrame, name: str, values: Sequence[Any]) -> Column:
    column, kind = rows[f"`{name}`"], rows.schema[name].dataType
    literals = [F.lit(value).cast(kind) for value in values if value is not None]
    tests = [column.isin(literals)] if literals else []
    if len(literals) < len(values):
        tests.append(column.isNull())
    return reduce(lambda one, other: one | other, tests) if tests else F.lit(col=False)


def _native(
    session: SparkSession, struct: StructType, files: Sequence[tuple[FileEntry, int]], lake: Lake, key: str | None
) -> DataFrame:
    addresses = {lake.address(entry.path): number for entry, number in files}
    # The files are known: no globbing of their names, no columns read out of their paths.
    reading = session.read.schema(struct).option("__globPaths__", "false").option("recursiveFileLookup", "true")
    rows = reading.options(**_NOTHING_LEFT_OUT).option(VERIFY_PAGES, "true").parquet(*addresses)
    if key is None:
        return rows
    # As a row's metadata spell the path of its file: encoded, and without an empty host.
    spelled = {
        found.replace("file:///", "file:/", 1): unquote(found.removeprefix("file://")) for found in rows.inputFiles()
    }
    numbers = [addresses[address] for address in spelled.values()]
    table = pa.table({"__noetl_path": list(spelled), key: pa.array(numbers, pa.int32())})
    found = F.col("_metadata.file_path") == F.col("__noetl_path")
    return rows.join(F.broadcast(session.createDataFrame(table)), found).drop("__noetl_path")


def _arrow(
    session: SparkSession, struct: StructType, files: Sequence[tuple[FileEntry, int]], lake: Lake, key: str | None
) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema

    full = struct if key is None else StructType([*struct.fields, StructField(key, IntegerType())])
    named = session.createDataFrame(
        pa.table(
            {
                "file": [msgspec.json.encode(msgspec.structs.replace(entry, stats={})).decode() for entry, _ in files],
                "task": pa.array([number for _, number in files], pa.int32()),
            }
        )
    )
    return named.mapInArrow(reader(lake, to_arrow_schema(full, timezone="UTC"), key), full)
