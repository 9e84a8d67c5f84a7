"""DuckDB for queries over certain files: made ahead of time, then given the files it may read and locked, then asked.

Even SQL that never saw the gate reaches no file but those, loads nothing and changes no setting.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from noetl.pipelines.tables.column_types import schema_of
from noetl.services.query.duck.proof import prove
from noetl.services.query.duck.protocol import Relation
from noetl.spark.lake.storage import Lake

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

import pyarrow.dataset as ds
from pyarrow import fs

_BATCH_ROWS: Final = 8_192
_KEPT: Final = 3
"""Databases that a process keeps for further queries over the same files."""


class AnswerSize(Exception):
    """The answer has more bytes than it may."""


def spare(memory: str, threads: int, scratch: Path, spill: str) -> DuckDBPyConnection:
    """Return a database in memory that loads nothing; it takes a while to make, so one is made ahead."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": memory,
            "threads": threads,
            "temp_directory": str(scratch),
            "max_temp_directory_size": spill,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_unsigned_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
            "enable_external_file_cache": "false",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    return connection


def confine(connection: DuckDBPyConnection, lake: Lake, relations: Sequence[Relation]) -> None:
    """Let a database read these relations and nothing else from now on, whatever it is told."""
    directory = lake.directory
    native = [one for one in relations if directory is not None and one.uniform and one.paths]
    files = {one.name: _listed([str(directory / path) for path in one.paths]) for one in native if directory}
    connection.execute(f"SET allowed_paths = [{', '.join(filter(None, files.values()))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for one in relations:
        if one.name in files:
            columns = ", ".join(f'"{_doubled(field.name)}"' for field in one.columns)
            connection.execute(
                f"CREATE VIEW {one.name} AS SELECT {columns} FROM read_parquet([{files[one.name]}], hive_partitioning = false)"  # noqa: S608 - names of ours, and all else is quoted
            )
        elif one.paths:
            connection.register(one.name, lake_dataset(lake, one.paths, schema_of(one.columns)))
        else:
            connection.register(one.name, schema_of(one.columns).empty_table())


class Instances:
    """The databases of one process: one made ahead, and those of the relations that were read last.

    Files never change, so a database that is confined to some serves further queries over exactly these.
    """

    def __init__(self, lake: Lake, make: Callable[[], DuckDBPyConnection]) -> None:
        self._lake = lake
        self._make = make
        self._spare: DuckDBPyConnection | None = None
        self._kept: OrderedDict[tuple[Relation, ...], DuckDBPyConnection] = OrderedDict()

    def prepare(self) -> None:
        """Make a database ahead, if none is."""
        if self._spare is None:
            self._spare = self._make()

    def of(self, relations: tuple[Relation, ...]) -> DuckDBPyConnection:
        """Return a database that reads these relations and nothing else."""
        found = self._kept.get(relations)
        if found is None:
            self.prepare()
            found, self._spare = self._spare, None
            assert found is not None
            confine(found, self._lake, relations)
            self._kept[relations] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)[1].close()
        self._kept.move_to_end(relations)
        return found

    def forget(self, relations: tuple[Relation, ...]) -> None:
        """Throw a database away: whatever a query left in it is gone."""
        found = self._kept.pop(relations, None)
        if found is not None:
            found.close()


def answer(connection: DuckDBPyConnection, sql: str, relations: Sequence[Relation], most_bytes: int) -> bytes:
    """Run a query and return its rows as an Arrow stream."""
    prove(connection, sql, [one.name for one in relations])
    reader: pa.RecordBatchReader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, reader.schema) as stream:
        for batch in reader:
            stream.write_batch(batch)
            if sink.tell() > most_bytes:
                raise AnswerSize
    return sink.getvalue()


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(f"'{path.replace(chr(39), chr(39) * 2)}'" for path in paths)


def _doubled(name: str) -> Any:
    return name.replace('"', '""')


def lake_dataset(lake: Lake, paths: Sequence[str], schema: pa.Schema) -> ds.Dataset:
    """Return exactly these files as one dataset; a column that a file lacks is null there."""
    system = fs.PyFileSystem(_Reading(lake))
    form = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    fragments = [form.make_fragment(path, filesystem=system) for path in paths]
    return ds.FileSystemDataset(fragments, schema=schema, format=form, filesystem=system)


class _Reading(fs.FileSystemHandler):  # type: ignore[misc]
    """The lake as Arrow asks for it: files are opened by name, and nothing else can be done."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reading) and other._lake == self._lake

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._lake.root)

    def get_type_name(self) -> str:
        return "lake"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        directory = self._lake.directory
        if directory is not None:
            return pa.OSFile(str(directory / path))
        return pa.PythonFile(self._lake.opened(path), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refuse(self, *arguments: Any, **options: Any) -> Any:
        raise PermissionError("the lake is only read here")

    get_file_info_selector = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
