"""A DataFrame goes in, files of one attempt's own come out, told per partition. Nothing is visible before a commit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructType

from noetl.errors import InputError
from noetl.model.dataset import ALL, Field, FileEntry, partition_values
from noetl.model.task import PartitionWrite, TaskTarget
from noetl.spark.lake.executor_rows import RETURNED, SOME, Place, Placing, writer
from noetl.spark.lake.parquet_files import measured
from noetl.spark.lake.reader import TASK, fields_of, struct_of, wider
from noetl.spark.lake.storage import Lake, commit_directory, commit_name, fresh_mark, remove_sidecars

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SPLIT: Final = "__noetl_p"
_SETTINGS: Final = {
    # Timestamps of the older kind have no statistics, and other readers have trouble with them.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Hundreds of known files are looked up at once, not by a Spark job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Rows that pass through Python do so in fewer, larger pieces; Spark also bounds a piece by its bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
WRITE_CHECKSUMS: Final = "parquet.page.write-checksum.enabled"
"""An option of Parquet's writer: each page carries a CRC-32 of its bytes."""
Groups = dict[tuple[int, str], list[FileEntry]]
"""Files by work and partition."""


def own_session_settings() -> Mapping[str, str]:
    """Return what a session that reads or writes datasets should be set to, unless its job says otherwise."""
    return _SETTINGS


def write_output(
    rows: DataFrame, target: TaskTarget, place: Place, lake: Lake, *, types: Mapping[str, DataType]
) -> tuple[PartitionWrite, ...]:
    """Write one task's rows of one output. `types` are the types that inputs give to partition columns."""
    dynamic = is_dynamic(target, place.partition_key)
    values = {} if dynamic else {name: F.lit(text) for name, text in partition_values(place.partition_key).items()}
    fitted = shaped(rows, target, values, types)
    columns = target.partition_by if dynamic else ()
    groups = _write(fitted, Placing(target.location, (place,), columns, _split_names(columns)), lake)
    if not dynamic:
        groups.setdefault((0, place.partition_key), [])
    return tuple(written_partitions(groups, target, fitted.schema).values())


def write_batch(
    rows: DataFrame, target: TaskTarget, places: Sequence[Place], lake: Lake, *, types: Mapping[str, DataType]
) -> dict[int, PartitionWrite]:
    """Write the rows of several tasks, told apart by the column `TASK`, as one Spark job; one write for each task."""
    texts = [partition_values(place.partition_key) for place in places]
    values = {
        name: F.element_at(F.array(*(F.lit(one[name]) for one in texts)), F.col(TASK) + 1)
        for name in target.partition_by
        if name not in rows.columns
    }
    fitted = shaped(rows, target, values, types, hidden=TASK)
    groups = _write(fitted, Placing(target.location, tuple(places), key=TASK), lake)
    for index, place in enumerate(places):
        groups.setdefault((index, place.partition_key), [])
    struct = StructType([one for one in fitted.schema if one.name != TASK])
    return {index: write for (index, _), write in written_partitions(groups, target, struct).items()}


def is_dynamic(target: TaskTarget, key: str) -> bool:
    """Whether a task's rows go to the partitions their own values name, instead of to the task's partition."""
    return bool(target.partition_by) and key == ALL


def shaped(
    rows: DataFrame,
    target: TaskTarget,
    values: Mapping[str, Column],
    types: Mapping[str, DataType],
    hidden: str | None = None,
) -> DataFrame:
    """Return rows with the columns of the output: partition columns filled in, known columns first and wide enough."""
    for name in target.partition_by:
        if name not in rows.columns:
            if name not in values:
                raise InputError(
                    f"output {target.output} is partitioned by {name!r}, but the job returns no such column: "
                    f"it returns {', '.join(rows.columns)}"
                )
            rows = rows.withColumn(name, values[name].cast(types.get(name, StringType())))
    held = {one.name: one.dataType for one in rows.schema}
    if len(held) < len(rows.columns):
        twice = sorted({name for name in rows.columns if rows.columns.count(name) > 1})
        raise InputError(f"output {target.output} has the column {twice[0]!r} twice: give one of them another name")
    wanted = {one.name: one.dataType for one in struct_of(target.declared or target.schema)}
    _refuse_missing(target, held, wanted)
    order = [name for name in wanted if name in held] + [name for name in held if name not in wanted]
    columns = [_fitting(name, held[name], wanted.get(name)) for name in order if name != hidden]
    return rows.select(*columns, *([F.col(hidden)] if hidden else []))


def written_partitions(groups: Groups, target: TaskTarget, struct: StructType) -> dict[tuple[int, str], PartitionWrite]:
    """Return what was written per work and partition, with the schema that all of it has."""
    promised = {one.name for one in target.declared if not one.nullable}
    schema = tuple(Field(one.name, one.type, one.name not in promised) for one in fields_of(struct))
    return {
        place: PartitionWrite(output=target.output, partition_key=place[1], schema=schema, files=tuple(files))
        for place, files in sorted(groups.items())
    }


def _refuse_missing(target: TaskTarget, held: Mapping[str, DataType], wanted: Mapping[str, DataType]) -> None:
    missing = [one.name for one in target.declared if one.name not in held]
    if missing:
        raise InputError(
            f"output {target.output} declares the column {missing[0]!r}, but the job returns only {', '.join(held)}"
        )
    for name in (name for name in held if target.declared and name in wanted):
        if wider(held[name].simpleString(), wanted[name].simpleString()) != wanted[name].simpleString():
            raise InputError(
                f"output {target.output} declares {name!r} as {wanted[name].simpleString()}, but the job returns "
                f"{held[name].simpleString()}: cast it, or change the declaration"
            )


def _fitting(name: str, held: DataType, wanted: DataType | None) -> Column:
    column = F.col(f"`{name}`")
    if wanted is None or wanted == held or wider(held.simpleString(), wanted.simpleString()) != wanted.simpleString():
        return column
    return column.cast(wanted).alias(name)


def _split_names(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{_SPLIT}{index}" for index in range(len(columns)))


def _write(rows: DataFrame, placing: Placing, lake: Lake) -> Groups:
    for name, column in zip(placing.split, placing.columns, strict=True):
        text = F.col(f"`{column}`").cast("string")
        rows = rows.withColumn(name, F.coalesce(F.concat(F.lit(SOME), text), F.lit("n")))
    if placing.split:
        # Otherwise every Spark task would write a file of its own into every partition.
        rows = rows.hint("rebalance", *placing.split)
    groups = _write_native(rows, placing, lake) if lake.native else _write_arrow(rows, placing, lake)
    return {place: [entry for entry in files if entry.rows] for place, files in groups.items()}


def _write_native(rows: DataFrame, placing: Placing, lake: Lake) -> Groups:
    mark = fresh_mark()
    first, alone = placing.places[0], not placing.hidden
    if alone:
        prefix = commit_directory(placing.location, first.partition_key, first.task_id, first.attempt, mark)
    else:
        prefix = placing.location + commit_name(first.task_id, first.attempt, mark)
    saving = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    saving = saving.option(WRITE_CHECKSUMS, "true")
    saving = saving if alone else saving.partitionBy(*placing.hidden)
    saving.parquet(lake.address(prefix))
    paths = _listed(lake, prefix)
    placed = [(placing.place(_directory_values(path, len(placing.hidden))), path) for path in paths]
    if lake.directory is not None and alone:
        # A sidecar that is damaged would fail every job for good, though the file it is of is what was committed.
        remove_sidecars(lake, paths)
    elif lake.directory is not None:
        placed = _settled(lake, placing, prefix, placed, mark)
    groups: Groups = {}
    for (place, _), entry in zip(placed, measured(lake, [path for _, path in placed]), strict=True):
        groups.setdefault(place, []).append(entry)
    return groups


def _settled(
    lake: Lake, placing: Placing, prefix: str, placed: list[tuple[tuple[int, str], str]], mark: str
) -> list[tuple[tuple[int, str], str]]:
    """Move files that nobody knows yet to the directories of their own partitions and attempts: free on a disk."""
    root = lake.directory
    assert root is not None
    settled = []
    for number, ((index, key), path) in enumerate(placed):
        place = placing.places[index]
        directory = commit_directory(placing.location, key, place.task_id, place.attempt, mark)
        name = f"{directory}/part-{number:05d}.parquet"
        (root / directory).mkdir(parents=True, exist_ok=True)
        (root / path).rename(root / name)
        settled.append(((index, key), name))
    shutil.rmtree(root / prefix)
    return settled


def _listed(lake: Lake, prefix: str) -> list[str]:
    """Return the data files below a prefix that this attempt alone wrote, as its committed job left them."""
    root = lake.directory
    if root is not None:
        return sorted(path.relative_to(root).as_posix() for path in (root / prefix).rglob("*.parquet"))
    import obstore

    pages = obstore.list(lake.store(), prefix=prefix)
    return sorted(str(item["path"]) for page in pages for item in page if str(item["path"]).endswith(".parquet"))


def _directory_values(path: str, count: int) -> list[str]:
    parents = PurePosixPath(path).parts[-1 - count : -1]
    return [unquote(part.partition("=")[2]) for part in parents]


def _write_arrow(rows: DataFrame, placing: Placing, lake: Lake) -> Groups:
    if placing.hidden:
        rows = rows.sortWithinPartitions(*placing.hidden)
    groups: Groups = {}
    for told in rows.mapInArrow(writer(lake, placing), RETURNED).toArrow().to_pylist():
        entry = FileEntry(
            path=told["path"],
            bytes=told["bytes"],
            rows=told["rows"],
            sha256=told["sha256"],
            stats=json.loads(told["stats"]),
            stamp=told["stamp"],
            footer=told["footer"],
        )
        groups.setdefault((told["work"], told["partition"]), []).append(entry)
    return groups
