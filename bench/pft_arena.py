"""Where the PFT figures are measured: a fresh database, the mock API in a process of its own, one run at a time.

Ours and the floor each run in a process of their own on the same database. Only the memory of our processes is
counted: neither PostgreSQL nor the mock API.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
from examples.pft.records import expected

from bench.database_testbed import DatabaseTestbed, open_database_testbed
from bench.pft_floor import Floor, Sizes

DATABASE = "pft"
SAMPLE_SECONDS = 0.25
COUNT_FRAMES = """
SELECT count(*) AS events, count(DISTINCT frame_id) AS frames
FROM noetl.event WHERE execution_id = $1 AND event_type LIKE 'frame.%'
"""


@dataclass(frozen=True)
class Ours:
    """What a run of a playbook came to."""

    seconds: float
    frames: int
    frame_events: int
    claims: int
    megabytes: float


class Arena:
    """Runs the workload, ours or bare, against one mock API on one server."""

    def __init__(self, on: DatabaseTestbed, api_url: str) -> None:
        self._on = on
        self._api_url = api_url
        self._url = on.server.url(database=DATABASE)

    async def floor(self, sizes: Sizes) -> Floor:
        """Run the bare script."""
        numbers = (
            sizes.facilities,
            sizes.patients,
            sizes.max_in_flight,
            sizes.row_concurrency,
            sizes.frame_rows,
        )
        process = await _python("bench.pft_floor", self._url, self._api_url, *map(str, numbers))
        return Floor(**json.loads(await _output(process)))

    async def ours(self, file: Path, sizes: Sizes) -> Ours:
        """Run a playbook, which checks its totals itself, and count what it left in the ledger."""
        workload = {
            "api_url": self._api_url,
            "num_facilities": sizes.facilities,
            "patients_per_facility": sizes.patients,
            "frame_rows": sizes.frame_rows,
            "max_in_flight": sizes.max_in_flight,
            "row_concurrency": sizes.row_concurrency,
            "expected": expected(sizes.facilities, sizes.patients, "s3").as_workload(),
        }
        home = str(self._on.server.status().home)
        told = json.dumps({"home": home, "file": str(file), "url": self._url, "workload": workload})
        process = await _python("bench.pft_ours", told)
        with Peak(process.pid) as peak:
            result = json.loads(await _output(process))
        assert result["status"].lower() == "completed", f"the run ended as {result['status']}"
        counted = await self._on.bare.fetchrow(COUNT_FRAMES, int(result["execution_id"]))
        assert counted is not None
        return Ours(result["seconds"], counted["frames"], counted["events"], result["claims"], peak.megabytes)


@asynccontextmanager
async def arena() -> AsyncIterator[Arena]:
    """Give a fresh arena and remove it afterwards."""
    async with open_database_testbed() as on, _mock_api() as api_url:
        admin = await asyncpg.connect(on.server.url("noetl_admin", "postgres"))
        await admin.execute(f"CREATE DATABASE {DATABASE} OWNER noetl_owner")
        await admin.close()
        yield Arena(on, api_url)


@asynccontextmanager
async def _mock_api() -> AsyncIterator[str]:
    process = await _python("examples.pft.mock_api", "--port", "0")
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        await process.wait()


async def _python(module: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdout=PIPE)


async def _output(process: Process) -> bytes:
    try:
        said, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    assert process.returncode == 0, f"the run ended with exit code {process.returncode}"
    return said


class Peak:
    """The most memory a process and its children had together, looked at four times a second from a thread."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes = 0.0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            try:
                ours = [self._process, *self._process.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.megabytes = max(self.megabytes, sum(map(_resident, ours)) / 2**20)


def _resident(process: psutil.Process) -> int:
    try:
        return 0 if process.name().startswith("postgres") else int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
