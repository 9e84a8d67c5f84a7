"""A process that dies while it records a query: the query is recorded whole or not at all, and nothing runs on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.service, pytest.mark.fault]


def noetl(home: Path, *arguments: str, fault: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    environment = {**os.environ, "NOETL_HOME": str(home), "NOETL_QUERY__MEMORY": "256MB"}
    if fault is not None:
        environment["NOETL_FAULT"] = fault
    command = [sys.executable, "-m", "noetl", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.timeout(240)
def test_a_query_is_answered_only_after_it_is_recorded(tmp_path: Path) -> None:
    """INV-78."""
    tmp_path.chmod(0o755)
    home = tmp_path / "home"
    assert noetl(home, "db", "start").returncode == 0
    try:
        before = noetl(home, "query", "SELECT 1 AS one", fault="query.before_record=kill")
        assert (before.returncode, before.stdout) == (-9, "")
        assert json.loads(noetl(home, "query", "log", "--json").stdout) == []
        after = noetl(home, "query", "SELECT 2 AS two", fault="query.after_record=kill")
        assert (after.returncode, after.stdout) == (-9, "")
        (told,) = json.loads(noetl(home, "query", "log", "--json").stdout)
        assert (told["outcome"], told["rows"]) == ("answered", 1)
        folders = list((home / "query").iterdir())
        assert len(folders) == 1, "what the first left is removed, what the second left waits for the next"
        assert _running_in(folders[0]) == []
    finally:
        noetl(home, "db", "stop")


def _running_in(folder: Path) -> list[str]:
    """Return the processes that work in a folder."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if one.readlink() == folder:
                found.append(one.parent.name)
        except OSError:
            continue
    return found
