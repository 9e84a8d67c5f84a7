"""Files are flushed with every directory that names them, before anybody speaks of them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.spark.lake.parquet_files import measured, write_table
from noetl.spark.lake.storage import Lake, make_durable


def test_a_file_and_all_directories_up_to_the_lake_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lake" / "a" / "gen=1" / "all" / "commit=t-1" / "part.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rows")
    flushed: list[str] = []
    real = os.fsync

    def seen(descriptor: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    make_durable(Lake(str(tmp_path / "lake")), [str(file.relative_to(tmp_path / "lake"))])

    assert flushed[0] == str(file)
    above = [str(parent) for parent in file.parents if tmp_path in parent.parents]
    assert sorted(flushed[1:]) == sorted(above)


def test_an_object_store_needs_no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("nothing is to be flushed"))
    make_durable(Lake("s3://bucket/lake", {}, native=False), ["a/part.parquet"])


@pytest.mark.parametrize("way", ["written by Spark", "rewritten here"])
def test_no_entry_of_a_file_is_given_before_it_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table, flushed = pa.table({"a": [1]}), []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    if way == "written by Spark":
        pq.write_table(table, tmp_path / "part.parquet")
        (entry,) = measured(Lake(str(tmp_path)), ["part.parquet"])
    else:
        entry = write_table(Lake(str(tmp_path)), "part.parquet", table)
    assert entry.rows == 1
    assert (tmp_path / "part.parquet").stat().st_ino in flushed
