"""The first rows of a dataset, and its files as a plain directory."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.pipelines.works import lake_of, target, work

from noetl.errors import Corrupt, Damaged, InputError
from noetl.pipelines.datasets.dataset_reader import PartitionFile
from noetl.pipelines.datasets.export import TOLD, export, local_copies
from noetl.pipelines.datasets.first_rows import first_rows, wanted_values
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tables.partitions import TableWriter

ROWS = pa.table({"day": ["1", "1", "2"], "id": [1, 2, 3]})
SCHEMA = pa.schema([("day", pa.string()), ("id", pa.int64()), ("later", pa.string())])


@pytest.fixture
def files(tmp_path: Path) -> LakeFiles:
    return lake_of(tmp_path / "lake")


@pytest.fixture
async def parts(files: LakeFiles) -> list[PartitionFile]:
    written = await TableWriter(files).write(work(target(partition_by=("day",))), {0: ROWS})
    return [PartitionFile(write.partition_key, entry) for write in written.writes for entry in write.files]


def test_rows_come_in_the_order_of_the_files_with_columns_they_lack(
    files: LakeFiles, parts: list[PartitionFile]
) -> None:
    assert first_rows(files, parts, SCHEMA, {}, 2).to_pylist() == [
        {"day": "1", "id": 1, "later": None},
        {"day": "1", "id": 2, "later": None},
    ]
    assert first_rows(files, parts, SCHEMA, {}, 20).num_rows == 3
    assert first_rows(files, parts, SCHEMA, {}, 0).num_rows == 0
    assert first_rows(files, [], SCHEMA, {}, 5).schema == SCHEMA


def test_conditions_choose_rows_and_spare_files_that_cannot_have_them(
    files: LakeFiles, parts: list[PartitionFile], tmp_path: Path
) -> None:
    gone = files.local(parts[0].entry)
    assert gone is not None
    gone.unlink()
    wanted = wanted_values(["day=2", "id=3", "id=4"], SCHEMA)
    assert first_rows(files, parts, SCHEMA, wanted, 5).column("id").to_pylist() == [3]
    with pytest.raises(Damaged, match="is not in the lake any more"):
        first_rows(files, parts, SCHEMA, wanted_values(["id=1"], SCHEMA), 5)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [("id", "'id' is no condition"), ("no=1", "no column 'no'"), ("id=x", "of type int64 and cannot be x")],
)
def test_a_condition_that_makes_no_sense_is_refused(condition: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        wanted_values([condition], SCHEMA)


def test_a_dataset_is_copied_file_by_file_and_told_about(
    files: LakeFiles, parts: list[PartitionFile], tmp_path: Path
) -> None:
    sizes: list[int] = []
    (tmp_path / "out").mkdir()
    paths = export(files, parts, tmp_path / "out", {"name": "orders"}, sizes.append)
    assert sorted(sizes) == sorted(part.entry.bytes for part in parts)
    assert pq.read_table(paths[1]).to_pylist() == [{"day": "2", "id": 3}]
    told = json.loads((tmp_path / "out" / TOLD).read_text())
    assert [(one["file"], one["partition"], one["rows"]) for one in told["files"]] == [
        ("part-00000.parquet", "day=1", 2),
        ("part-00001.parquet", "day=2", 1),
    ]


def test_a_damaged_file_leaves_nothing_behind(files: LakeFiles, parts: list[PartitionFile], tmp_path: Path) -> None:
    damaged = PartitionFile("day=1", msgspec.structs.replace(parts[0].entry, sha256="0" * 64))
    with pytest.raises(Corrupt, match="is not what was committed"):
        export(files, [parts[1], damaged], tmp_path / "new" / "out", {})
    assert list((tmp_path / "new").iterdir()) == []


def test_a_directory_with_something_in_it_is_refused(
    files: LakeFiles, parts: list[PartitionFile], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for place, problem in ((tmp_path, "is not empty"), (tmp_path / "file", "is a file")):
        with pytest.raises(InputError, match=problem):
            export(files, parts, place, {})


def test_files_of_a_directory_lake_are_used_where_they_are(
    files: LakeFiles, parts: list[PartitionFile], tmp_path: Path
) -> None:
    found = local_copies(files, parts, tmp_path / "scratch")
    assert [str(path) for path in found] == [files.address(part.entry) for part in parts]
    assert not (tmp_path / "scratch").exists()
