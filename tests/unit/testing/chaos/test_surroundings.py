"""Clocks that are wrong, a disk that is full: whether what chaos does is really done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noetl.testing.chaos.clock import WrongClocks
from noetl.testing.chaos.disk import SmallDisk

TELL_TIME = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def test_a_process_lives_by_its_wrong_clock_from_the_moment_it_is_set(tmp_path: Path) -> None:
    clocks = WrongClocks(tmp_path)
    if not clocks.build():
        pytest.skip("there is no C compiler here")
    process = subprocess.Popen(
        [sys.executable, "-c", TELL_TIME],
        env=os.environ | clocks.environ("one"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def told() -> tuple[float, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        wall, steady = process.stdout.readline().split()
        return float(wall), float(steady)

    try:
        assert told()[0] == pytest.approx(time.time(), abs=5)
        clocks.set("one", 3600)
        wall, steady = told()
        assert wall == pytest.approx(time.time() + 3600, abs=5)
        assert steady == pytest.approx(time.monotonic(), abs=5)
        clocks.set("one", -3600)
        assert told()[0] == pytest.approx(time.time() - 3600, abs=5)
    finally:
        process.communicate()


def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "small", size_mb=4)
    if not disk.mount():
        pytest.skip("this account may not mount a file system")
    try:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.directory / "one").write_bytes(b"x")
        disk.free()
        (disk.directory / "one").write_bytes(b"x")
    finally:
        disk.unmount()
