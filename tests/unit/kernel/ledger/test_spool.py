"""What a killed archiver leaves on the disk goes with the next run, and not before it can be sure."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from noetl.kernel.ledger.archive.spool import Spools


def test_old_spools_are_removed_and_fresh_ones_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, fresh, foreign = (tmp_path / name for name in ("noetl-archive-old", "noetl-archive-fresh", "other"))
    for folder in (old, fresh, foreign):
        folder.mkdir()
        (folder / "1").write_text("an event")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    os.utime(foreign, (two_days_ago, two_days_ago))
    with Spools(10):
        assert sorted(path.name for path in tmp_path.iterdir() if path != old)[-1] == "other"
        assert not old.exists()
    assert fresh.exists()
    assert foreign.exists()
    assert len(list(tmp_path.iterdir())) == 2
