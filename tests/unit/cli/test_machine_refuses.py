"""A machine that refuses (a full disk, a limit) gets one line and advice, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.cli.main import run
from noetl.testing.attacks.outages import files_up_to


def test_a_file_that_may_not_grow_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with files_up_to(20):
        code = run(["dag", "init", "shop"])
    told = capsys.readouterr().err
    assert (code, "File too large" in told, "Traceback" in told) == (1, True, False)
    assert "hint: raise the limit on the size of files (ulimit -f)" in told
