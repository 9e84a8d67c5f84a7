"""Files of the lake as an Arrow dataset: paths and a schema go in; rows are read when asked for, only the columns needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from noetl.spark.lake import Lake


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
