"""What a driver leaves behind when it could not clear up is removed by the next one, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from noetl.spark.drivers.scratch import claimed, new_scratch


def test_a_directory_goes_when_whoever_held_it_is_gone(tmp_path: Path) -> None:
    left = new_scratch(tmp_path)
    (left / "local").mkdir()
    waits = "import sys; sys.stdin.read()"
    with claimed(left) as claim:
        holder = subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE, pass_fds=(claim,))
    with holder:
        beside = new_scratch(tmp_path)
        assert left.exists()
        holder.kill()
        holder.wait()
        last = new_scratch(tmp_path)
    assert not left.exists()
    # Nobody holds this one either, but it is so new that its driver may not have come to it.
    assert beside.exists()
    assert last.exists()
