"""Copies that a killed command left are removed by the next, and those in use stay."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from noetl.pipelines.datasets.scratch import own_scratch


def test_what_was_left_goes_and_what_is_used_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, new, other = (tmp_path / name for name in ("noetl-diff-left", "noetl-diff-new", "noetl-else"))
    for one in (left, new, other):
        one.mkdir()
        (one / "copy.parquet").write_bytes(b"x")
    (tmp_path / "noetl-diff-link").symlink_to(other)
    for one in (left, other):
        os.utime(one, (1, 1))
    with own_scratch("noetl-diff-") as mine:
        os.utime(mine, (1, 1))
        with own_scratch("noetl-diff-"):
            assert (mine.exists(), left.exists(), new.exists(), other.exists()) == (True, False, True, True)
    assert not mine.exists()
    assert (other / "copy.parquet").exists()
