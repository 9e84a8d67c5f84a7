"""Files are flushed with every directory that names them, before anybody speaks of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noetl.spark.durable import make_durable
from noetl.spark.lake import Lake


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
