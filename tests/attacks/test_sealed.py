"""What tasks may read and not write, and memory that no process of theirs maps."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import noetl
from noetl.engine.confinement import policy as policies
from noetl.engine.confinement import process as confined_processes
from noetl.engine.confinement.policy import Policy
from noetl.engine.tools.programs.process import run_process
from noetl.engine.tools.python.pool import PythonPool, Request, Variant
from noetl.runtime.config import load_settings
from noetl.runtime.confinement import hide_secrets

spaces = pytest.mark.skipif(
    sys.platform != "linux" or policies.namespaces_obstacle() is not None, reason="no namespaces here"
)
pytestmark = spaces

WRITE = """
for path in {}; do
    if test -w $path; then echo $path; fi
    if test -d $path && touch $path/noetl-attack 2>/dev/null; then rm $path/noetl-attack; echo into $path; fi
done
true"""
"""Says what may be written to, and leaves nothing there."""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a process hides stays hidden, so it is that of this test alone.
    monkeypatch.setattr(policies, "_policy", Policy(namespaces=True))
    monkeypatch.chdir(tmp_path)


async def test_a_task_changes_neither_our_code_nor_settings_nor_what_others_run(tmp_path: Path) -> None:
    """INV-200: its next start, and tasks of others with the same packages, are as they were. Packages can be installed."""
    (tmp_path / "noetl.yaml").write_text("worker: {isolation: namespace}")
    environments = tmp_path / ".noetl/cache/python"
    environments.mkdir(parents=True)
    (tmp_path / ".noetl/.gitignore").write_text("*\n")
    hide_secrets(load_settings(environ={}))
    places = [sys.prefix, Path(noetl.__file__).parent, tmp_path / "noetl.yaml", environments, "/sys/fs/cgroup"]
    command = ["/bin/sh", "-c", WRITE.format(shlex.join(map(str, places)))]
    written = await run_process(command)
    assert (written.stdout.text, written.exit_code) == ("", 0)
    moved = await run_process(["/bin/sh", "-c", "echo 'worker: {isolation: none}' > new; mv new noetl.yaml"])
    assert moved.exit_code != 0
    assert "namespace" in (tmp_path / "noetl.yaml").read_text()
    installed = await run_process(["/bin/sh", "-c", f"touch {environments}/x && touch ours"], as_account=True)
    assert installed.exit_code == 0
    assert (environments / "x").exists()


LEAVE_GROUP = """
import glob
left = []
for path in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:200]:
    try:
        open(path, "w").write("0")
        left.append(path)
    except OSError:
        pass
result = left
"""

FILL_SHARED = """
import os
try:
    with open("/dev/shm/noetl-filled", "wb") as file:
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))
            file.flush()
    os.read(os.pipe()[0], 1)
except OSError as problem:
    result = str(problem)
"""
"""Keeps what it wrote until it is ended."""


async def attacked(code: str, memory_mb: int, **given: Any) -> Any:
    pool = PythonPool(1, 10)
    try:
        answer = await pool.run(Variant("attacker", sys.executable, memory_mb), Request(code, code, given, {}), 60)
    finally:
        await pool.aclose()
    return answer.body.get("result") if answer.how == "answered" else answer.how


async def test_a_task_does_not_leave_the_group_that_bounds_it() -> None:
    """INV-201."""
    assert await attacked(LEAVE_GROUP, 256) == []


def _left_in_shared_memory() -> bool:
    left = Path("/dev/shm/noetl-filled")
    if not left.exists():
        return False
    left.unlink()
    return True


@pytest.mark.parametrize(("bounded", "size"), [("by a control group", 160 << 20), ("by watching", 124 << 20)])
async def test_shared_memory_counts_and_is_the_tasks_own(
    bounded: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-201: nor is anything left in that of the machine."""
    if bounded == "by watching":
        monkeypatch.setattr(confined_processes, "bounded_group", lambda memory_bytes: None)
    ended = await attacked(FILL_SHARED, 64, size=size)
    assert ended == "died" or "No space left" in str(ended), ended
    left = await asyncio.to_thread(_left_in_shared_memory)
    assert not left
