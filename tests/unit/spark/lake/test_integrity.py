"""Files are held against their manifests: what changes is noticed, what was proven is not hashed again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.errors import Damaged, Unavailable
from noetl.model.dataset import FileEntry
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.spark.lake.integrity.checks import UNBOUNDED, Checks
from noetl.spark.lake.integrity.proofs import Proofs, node_proofs
from noetl.spark.lake.integrity.stamps import stat
from noetl.spark.lake.parquet_files import measured, read_table, write_table
from noetl.spark.lake.storage import Lake
from noetl.testing.attacks import files as attacks

ROWS = pa.table({"id": pa.array(range(40), pa.int64()), "amount": pa.array(range(40), pa.int32())})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def entry(lake: Lake) -> FileEntry:
    return write_table(lake, "a/part.parquet", ROWS)


@pytest.fixture
def file(lake: Lake, entry: FileEntry) -> Path:
    assert lake.directory is not None
    return lake.directory / entry.path


def test_a_page_that_lost_a_bit_is_refused_by_pyarrow(lake: Lake, entry: FileEntry, file: Path) -> None:
    """INV-184."""
    attacks.flip_a_bit(file, column="amount", unseen=True)
    assert not pq.read_table(file).equals(ROWS)
    with pytest.raises(Damaged, match=r"cannot be read: .*checksum"):
        read_table(lake, entry)


@pytest.mark.parametrize("attack", attacks.VISIBLE.values(), ids=attacks.VISIBLE.keys())
def test_damage_is_refused_at_a_look(lake: Lake, entry: FileEntry, file: Path, attack: attacks.Attack) -> None:
    """INV-183."""
    attack(file)
    with pytest.raises(Damaged, match=entry.path) as refused:
        Checks(lake).unchanged([entry])
    assert "noetl datasets repair" in str(refused.value.hint)
    assert (Checks(lake).damage(entry) is None, Checks(lake).quick_damage(entry) is None) == (False, False)


def test_an_entry_without_a_stamp_is_checked_by_size(lake: Lake, entry: FileEntry, file: Path) -> None:
    """INV-183: what was committed before stamps were kept is not hashed for that."""
    old = msgspec.structs.replace(entry, stamp="")
    attacks.touch(file)
    Checks(lake).unchanged([old])
    attacks.cut_short(file)
    with pytest.raises(Damaged, match="bytes instead of"):
        Checks(lake).unchanged([old])


def test_a_restored_copy_is_hashed_once_and_read(lake: Lake, entry: FileEntry, file: Path, tmp_path: Path) -> None:
    """INV-183: the time of a file alone is no damage."""
    attacks.touch(file)
    checks = Checks(lake, Proofs(tmp_path / "log"))
    checks.unchanged([entry])
    assert checks.proven([entry], UNBOUNDED).files == 0


def test_proofs_are_shared_by_processes_and_end_with_the_file(
    lake: Lake, entry: FileEntry, file: Path, tmp_path: Path
) -> None:
    """INV-185: a file whose time was set back has another time of its inode's change."""
    assert entry.stamp == f"mtime:{file.stat().st_mtime_ns}"
    assert Checks(lake, node_proofs(tmp_path, lake)).proven([entry], UNBOUNDED).files == 1
    another = Checks(lake, node_proofs(tmp_path, lake))
    assert another.proven([entry], UNBOUNDED).files == 0
    assert node_proofs(tmp_path, Lake(str(tmp_path / "other"))).holds(entry, stat(lake, entry.path)) is False
    attacks.flip_a_bit(file, column="amount", unseen=True)
    another.unchanged([entry])
    with pytest.raises(Damaged, match="its SHA-256 is"):
        another.proven([entry], UNBOUNDED)


def test_a_log_that_was_torn_or_cannot_be_written_only_costs_time(lake: Lake, entry: FileEntry, tmp_path: Path) -> None:
    log = tmp_path / "log"
    Checks(lake, Proofs(log)).proven([entry], UNBOUNDED)
    whole = log.read_bytes()
    assert (len(whole), oct(log.stat().st_mode)[-3:]) == (66, "600")
    log.write_bytes(b"\xff" * 40 + b"\n" + whole[:20])
    assert Checks(lake, Proofs(log)).proven([entry], UNBOUNDED).files == 1
    nowhere = tmp_path / "file" / "log"
    (tmp_path / "file").write_text("no directory")
    checks = Checks(lake, Proofs(nowhere))
    assert [checks.proven([entry], UNBOUNDED).files for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("left", ["nothing", "an empty directory", "an empty disk"])
def test_a_lake_that_is_not_mounted_is_away_and_not_damaged(
    lake: Lake, entry: FileEntry, tmp_path: Path, left: str
) -> None:
    """INV-183: a mount that is gone must not have everything built again in its place."""
    assert lake.directory is not None
    lake.directory.rename(tmp_path / "elsewhere")
    if left != "nothing":
        lake.directory.mkdir()
    if left == "an empty disk":
        (lake.directory / "lost+found").mkdir()
    checks = Checks(lake)
    looks = (lambda: checks.unchanged([entry]), lambda: checks.damage(entry), lambda: read_table(lake, entry))
    for look in (*looks, lambda: checks.quick_damage(entry), lambda: checks.proven([entry], UNBOUNDED)):
        with pytest.raises(Unavailable, match="is missing or empty"):
            look()
    assert lake.directory is not None
    (lake.directory / "b").mkdir(parents=True)
    found = checks.damage(entry)
    assert found is not None
    assert found.why == "missing"


def test_a_file_that_may_not_be_read_is_no_damage(lake: Lake, entry: FileEntry, file: Path) -> None:
    """INV-183: a link that names itself fails at every look, as a bad sector or another account's file does."""
    file.unlink()
    file.symlink_to(file.name)
    with pytest.raises(Unavailable, match="the lake does not answer"):
        Checks(lake).damage(entry)


def _written(lake: Lake, how: str) -> FileEntry:
    if how == "streamed":
        return write_table(lake, "a/streamed.parquet", ROWS)
    if how == "whole":
        return asyncio.run(LakeFiles(lake).write("a", ROWS))
    file = Path(lake.root, "a", "measured.parquet")
    file.parent.mkdir(parents=True)
    pq.write_table(ROWS, file, write_page_checksum=True)
    return measured(lake, ["a/measured.parquet"])[0]


@pytest.mark.parametrize("how", ["streamed", "whole", "measured"])
def test_a_footer_that_lost_a_bit_is_refused_by_every_reader(lake: Lake, how: str) -> None:
    """INV-183, INV-184: no time tells and no page checksum covers it, and a column that is not named any more reads as null."""
    entry = _written(lake, how)
    Checks(lake).unchanged([entry])
    attacks.flip_a_bit_of_the_footer(Path(lake.root, entry.path), unseen=True)
    assert stat(lake, entry.path).stamp == entry.stamp
    files = LakeFiles(lake)
    reads = (lambda: read_table(lake, entry), lambda: list(files.batches(entry, ROWS.schema, 10)))
    for read in (*reads, lambda: asyncio.run(files.read([entry], ROWS.schema))):
        with pytest.raises(Damaged, match="its SHA-256 is"):
            read()
    found = Checks(lake).quick_damage(entry)
    assert found is not None
    assert found.why == "content"
    Checks(lake).unchanged([msgspec.structs.replace(entry, footer="")])
