"""A worker's scratch place: directories of executions, dropped when they have ended, and what dead workers left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from noetl.engine.tools.resources import Scratch, WorkerResources, keep_scratch, scratch_of
from noetl.model.stream import Scope

OWNER = Scope("acme", "sales")
LENDING = """
import asyncio, sys
from pathlib import Path
from noetl.engine.tools.resources import Scratch
from noetl.model.stream import Scope
async def lend():
    async with Scratch(Path(sys.argv[1])).lent(Scope("acme", "sales"), 1) as path:
        (path / "kept").write_text("x")
        print(path, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(lend())
"""


async def lend(scratch: Scratch, execution_id: int) -> Path:
    async with scratch.lent(OWNER, execution_id) as path:
        (path / "kept").write_text("x")
        return path


async def test_each_execution_has_a_directory_of_its_own_under_its_organization(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    first, second = await lend(scratch, 1), await lend(scratch, 2)
    assert first.parts[-3:] == ("acme", "sales", "1")
    assert second.parts[-3:] == ("acme", "sales", "2")
    assert await lend(scratch, 1) == first
    assert oct(first.stat().st_mode & 0o777) == "0o700"
    await scratch.aclose()


async def test_what_is_dropped_is_gone_unless_it_is_in_use(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    first, second = await lend(scratch, 1), await lend(scratch, 2)
    assert scratch.held() == [1, 2]
    async with scratch.lent(OWNER, 2):
        assert scratch.held() == [1]
        await scratch.drop([1, 2, 3])
        assert (first.exists(), second.exists()) == (False, True)
    assert scratch.held() == [2]
    await scratch.aclose()
    assert not second.exists()


async def test_two_workers_do_not_share_and_leave_each_other_alone(tmp_path: Path) -> None:
    one, other = Scratch(tmp_path), Scratch(tmp_path)
    first, second = await lend(one, 1), await lend(other, 1)
    assert first != second
    await other.aclose()
    assert (first.exists(), second.exists()) == (True, False)
    await one.aclose()


async def test_what_a_dead_worker_left_is_removed_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    workers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", LENDING, str(tmp_path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    dead, living = workers
    places = [Path((await worker.stdout.readline()).decode().strip()) for worker in workers if worker.stdout]
    assert all(place.exists() for place in places)
    os.kill(dead.pid, signal.SIGKILL)
    await dead.wait()
    assert places[0].exists(), "nobody has looked yet"

    scratch = Scratch(tmp_path)
    await lend(scratch, 7)

    assert [place.exists() for place in places] == [False, True]
    await living.communicate(b"")
    await scratch.aclose()


async def test_tools_get_the_place_their_worker_was_given_or_one_among_the_temporary_files(tmp_path: Path) -> None:
    given, without = WorkerResources(), WorkerResources()
    kept = await keep_scratch(given, tmp_path)
    assert await scratch_of(given) is kept
    path = await lend(await scratch_of(without), 1)
    root = path.parents[3]
    assert tmp_path not in path.parents
    await given.aclose()
    await without.aclose()
    assert not root.exists()
