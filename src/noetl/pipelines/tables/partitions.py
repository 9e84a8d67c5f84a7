"""Arrow tables to partitions of datasets and back, for operators that run in this process.

What is written lies under the attempt's own prefix and is nobody's until it is committed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from noetl.errors import InputError
from noetl.model.dataset import FileEntry, Manifest, partition_key, partition_values
from noetl.model.task import CheckResult, PartitionWrite, TaskInput, TaskTarget
from noetl.pipelines.plan.identity import is_again
from noetl.pipelines.tables.checks import WHOLE, checked, checks_of
from noetl.pipelines.tables.column_types import fields_of, schema_of
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.storage import commit_directory


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt wrote and how its checks came out."""

    writes: tuple[PartitionWrite, ...] = ()
    dropped: tuple[tuple[int, str], ...] = ()
    checks: tuple[CheckResult, ...] = ()


class TableReader:
    """Reads pinned partitions."""

    def __init__(self, files: LakeFiles) -> None:
        self._files = files

    async def read(self, work: Work, one: TaskInput) -> pa.Table:
        """Return the rows of an input that this task is to see."""
        entries, schema = self._entries(work, one)
        table = await self._files.read(entries, schema)
        for column, wanted in one.where.items():
            allowed = wanted if isinstance(wanted, list) else [wanted]
            table = table.filter(pc.is_in(table.column(column), pa.array(allowed, table.schema.field(column).type)))
        return table

    async def greatest(self, work: Work, one: TaskInput, column: str) -> Any:
        """Return the greatest value of a column, from the files' statistics where they have it."""
        entries, _ = self._entries(work, one)
        known = [entry.stats[column]["max"] for entry in entries if "max" in entry.stats.get(column, {})]
        if len(known) == len([entry for entry in entries if entry.rows]) and not one.where:
            return max(known, default=None)
        table = await self.read(work, one)
        return pc.max(table.column(column)).as_py()

    def _entries(self, work: Work, one: TaskInput) -> tuple[list[FileEntry], pa.Schema]:
        entries: list[FileEntry] = []
        schema = pa.schema([])
        for part in one.parts:
            manifest = work.manifests[part.manifest.sha256]
            entries += manifest.added_since(part.after)
            schema = pa.unify_schemas([schema, schema_of(manifest.schema)], promote_options="permissive")
        return entries, schema if one.parts else schema_of(one.schema)


class TableWriter:
    """Writes tables as partitions of a task's targets."""

    def __init__(self, files: LakeFiles) -> None:
        self._files = files

    async def write(self, work: Work, tables: dict[int, pa.Table]) -> Written:
        """Write what an operator made; an output without a table is left as it is."""
        writes: list[PartitionWrite] = []
        dropped: list[tuple[int, str]] = []
        results: list[CheckResult] = []
        for target in work.grant.targets:
            table = tables.get(target.output)
            if table is None:
                continue
            parts = self._split(work, target, table)
            kept: list[pa.Table] = []
            for key, rows in parts.items():
                written = await self._partition(work, target, key, rows)
                if written is not None:
                    writes.append(written[0])
                    kept.append(written[1])
            if kept or target.update_strategy == "replace":
                new = pa.concat_tables(kept) if kept else table
                results += await self._checked(work, target, new, parts.keys())
            if target.update_strategy == "replace" and work.grant.partition_key == "all" and target.partition_by:
                gone = {part.partition_key for part in target.parts} - parts.keys()
                dropped += [(target.output, key) for key in sorted(gone)]
        return Written(writes=tuple(writes), dropped=tuple(dropped), checks=tuple(results))

    async def unique_again(self, work: Work, write: PartitionWrite, landed: Manifest) -> PartitionWrite:
        """Write the rows of a partition once more without those whose key another commit brought meanwhile."""
        target = next(one for one in work.grant.targets if one.output == write.output)
        schema = schema_of(write.schema)
        own = await self._files.read(write.files, schema)
        rows = await self._without(own, target.unique_key, landed.added_since(write.base_version), schema)
        if rows.num_rows == own.num_rows:
            return msgspec.structs.replace(write, base_version=landed.version)
        files = (await self._write(work, target, write.partition_key, rows),) if rows.num_rows else ()
        return msgspec.structs.replace(write, files=files, base_version=landed.version)

    def _split(self, work: Work, target: TaskTarget, table: pa.Table) -> dict[str, pa.Table]:
        key = work.grant.partition_key
        if not target.partition_by or key != "all":
            if work.grant.strategy is None and is_again(work.grant.lease.task_id):
                _refuse_foreign_rows(table, target, key)
            return {key: table}
        columns = list(target.partition_by)
        if table.num_rows == 0:
            return {}
        _need(table, columns, f"dataset {target.dataset_name} is partitioned by")
        named = [partition_key(columns, row) for row in table.select(columns).to_pylist()]
        names = pa.array(named)
        return {name: table.filter(pc.equal(names, name)) for name in dict.fromkeys(named)}

    async def _checked(
        self, work: Work, target: TaskTarget, rows: pa.Table, keys: Collection[str]
    ) -> tuple[CheckResult, ...]:
        checks = checks_of(work.grant.checks, target)
        standing = None
        if target.update_strategy == "append" and any(check.kind in WHOLE for check in checks):
            manifests = [work.manifests[part.manifest.sha256] for part in target.parts if part.partition_key in keys]
            entries = [entry for manifest in manifests for entry in manifest.files]
            standing = await self._files.read(entries, schema_of(target.schema)) if entries else None
        return await asyncio.to_thread(checked, rows, standing, checks)

    async def _partition(
        self, work: Work, target: TaskTarget, key: str, rows: pa.Table
    ) -> tuple[PartitionWrite, pa.Table] | None:
        base = next((part for part in target.parts if part.partition_key == key), None)
        append = target.update_strategy == "append"
        version = 0 if base is None else base.version
        if target.schema:
            rows = _conformed(rows, schema_of(target.schema))
        if append:
            _need(rows, target.unique_key, f"rows of dataset {target.dataset_name} are told apart by")
            rows = _first_of_each(rows, target.unique_key)
            if base is not None:
                known = work.manifests[base.manifest.sha256].files
                rows = await self._without(rows, target.unique_key, known, rows.schema)
            if rows.num_rows == 0 and base is not None:
                return None  # nothing is new
        files = (await self._write(work, target, key, rows),) if rows.num_rows else ()
        write = PartitionWrite(
            output=target.output, partition_key=key, schema=fields_of(rows.schema), files=files, base_version=version
        )
        return write, rows

    async def _without(
        self, rows: pa.Table, keys: Sequence[str], known: Sequence[FileEntry], schema: pa.Schema
    ) -> pa.Table:
        if not known:
            return rows
        there = await self._files.read(known, pa.schema([schema.field(name) for name in keys]))
        return await asyncio.to_thread(_not_in, rows, there, keys)

    async def _write(self, work: Work, target: TaskTarget, key: str, rows: pa.Table) -> FileEntry:
        lease = work.grant.lease
        folder = commit_directory(target.location, key, lease.task_id, lease.attempt, uuid.uuid4().hex[:8])
        return await self._files.write(folder, rows)


def _refuse_foreign_rows(rows: pa.Table, target: TaskTarget, key: str) -> None:
    """Refuse rows of a source that was asked for one partition and gave others, or calls it by another name."""
    for name, asked in partition_values(key).items():
        given = pc.unique(rows.column(name)).to_pylist() if name in rows.column_names else []
        foreign = [value for value in given if partition_values(partition_key([name], {name: value}))[name] != asked]
        if foreign:
            raise InputError(
                f"dataset {target.dataset_name} was to be made for {key!r}, and rows have {name} = {str(foreign[0])!r}",
                hint="give only the rows of the partition the task names, spelled as it spells them",
            )


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring the columns a generation has already into its types where that loses nothing; the rest is judged at commit."""
    for place, field in enumerate(rows.schema):
        known = schema.field(field.name) if field.name in schema.names else None
        if known is not None and known.type != field.type:
            try:
                rows = rows.set_column(place, known, rows.column(place).cast(known.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
    return rows


def _need(rows: pa.Table, columns: Sequence[str], why: str) -> None:
    for name in columns:
        if name not in rows.column_names:
            held = ", ".join(rows.column_names) or "none"
            raise InputError(f"{why} {name!r}, and the rows have no such column", hint=f"they have {held}")


def _not_in(rows: pa.Table, there: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Keep the rows whose key is not there; null is a value like any other."""
    known = set(_keys(there, keys))
    return rows.take(pa.array([place for place, key in enumerate(_keys(rows, keys)) if key not in known], pa.int64()))


def _keys(rows: pa.Table, keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in keys), strict=True)


def _first_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Keep the first row of each key."""
    numbered = rows.append_column("__place", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by(list(keys), use_threads=False).aggregate([("__place", "min")])
    return rows.take(first.column("__place_min").combine_chunks().sort())
