"""Two stores, two databases: one is away or its projector is killed, the other goes on, and each ends as one fold says."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.faults.projectors.gate import Gate
from tests.faults.projectors.processes import PATIENCE, ProjectorProcess

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.frame import FRAME
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.model.mark import Mark
from noetl.testing.samples.projected_ledger import HOME, a_run, pure_rows, record, stored_rows
from noetl.testing.servers.postgres import FreshDatabases

# Frames are not in the ledger's own database here, so the comparison that follows other tests is made in the test.
pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.no_parity]

RUNS, FRAMES = 8, 12
REST = tuple(fold for fold in built_in_folds() if fold is not FRAME)
POINTS = ("project.after_rows", "project.before_commit", "project.after_commit")
Begin = Callable[..., ProjectorProcess]


class ProjectorTestbed:
    """The ledger's database and that of the store `analytics`, which has the frames."""

    def __init__(self, owner_url: str, other_url: str, database: Database, other: Database, folder: Path) -> None:
        self.default, self.analytics = PostgresProjectionStore(database), PostgresProjectionStore(other)
        self.gate = Gate(other_url)
        self._url, self._other_url, self._folder = owner_url, other_url, folder

    def settings(self, url: str | None = None) -> dict[str, str]:
        """The environment of a process; frames go to a store at this URL."""
        return {
            "NOETL_DATABASE_URL": self._url,
            "NOETL_PROJECTION_STORES__ANALYTICS__CONNECTION__DSN": url or self._other_url,
            "NOETL_PROJECTION_STORES__ANALYTICS__PROJECTIONS": FRAME.projection,
        }

    def noetl(self, *arguments: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "noetl", *arguments],
            env={**os.environ, **self.settings(), "NOETL_FAULT": fault},
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    async def proven(self, ledger: PostgresLedger) -> None:
        """Each store is what a fold of its types over the whole ledger says, and `noetl verify` says so, too."""
        for store, folds in ((self.default, REST), (self.analytics, (FRAME,))):
            assert await store.checkpoints() == await ledger.head()
            assert await stored_rows(store) == await pure_rows(ledger, folds)
        self.clean()

    def clean(self) -> None:
        """`noetl verify` finds nothing, wherever the stores are."""
        verified = self.noetl("verify", "--all")
        assert (verified.returncode, "Nothing differs." in verified.stdout) == (0, True), verified


@pytest.fixture
async def testbed(
    owner_url: str, database: Database, fresh_databases: FreshDatabases, tmp_path: Path
) -> AsyncIterator[ProjectorTestbed]:
    name = fresh_databases.take()
    other = Database(fresh_databases.url(name), as_roles=True)
    testbed = ProjectorTestbed(owner_url, fresh_databases.url(name), database, other, tmp_path)
    await testbed.gate.open()
    yield testbed
    await testbed.gate.shut()
    await other.close()
    fresh_databases.drop(name)


async def reached(store: PostgresProjectionStore, mark: Mark, process: ProjectorProcess) -> None:
    """Wait until a store is at a mark; it is asked again and again, since others move it."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await store.checkpoints()).covers(mark):
                pass
    except TimeoutError:
        pytest.fail(process.said())


async def test_a_store_that_is_away_stops_no_other_and_catches_up(
    testbed: ProjectorTestbed, ledger: PostgresLedger, begin: Begin
) -> None:
    """INV-124."""
    projector = begin("one", **testbed.settings(testbed.gate.url))
    await record(ledger, a_run(HOME, FRAMES))
    there = await ledger.head()
    await reached(testbed.default, there, projector)
    await reached(testbed.analytics, there, projector)

    await testbed.gate.shut()
    await asyncio.gather(*(record(ledger, a_run(HOME, FRAMES)) for _ in range(RUNS)))
    await reached(testbed.default, await ledger.head(), projector)
    assert await testbed.analytics.checkpoints() == there
    assert projector.process.poll() is None, projector.said()

    await testbed.gate.open()
    await reached(testbed.analytics, await ledger.head(), projector)
    projector.end()
    await testbed.proven(ledger)


async def test_a_projector_starts_while_a_store_is_away_and_takes_it_up_later(
    testbed: ProjectorTestbed, ledger: PostgresLedger, begin: Begin
) -> None:
    """INV-124."""
    away = testbed.gate.url
    await testbed.gate.shut()
    await record(ledger, a_run(HOME, FRAMES))
    projector = begin("one", **testbed.settings(away))
    await reached(testbed.default, await ledger.head(), projector)
    assert await testbed.analytics.checkpoints() == Mark.zero()
    await testbed.gate.open()
    await reached(testbed.analytics, await ledger.head(), projector)
    projector.end()
    await testbed.proven(ledger)


@pytest.mark.parametrize("point", POINTS)
async def test_killed_between_the_stores_each_is_whole_at_its_own_position(
    testbed: ProjectorTestbed, ledger: PostgresLedger, point: str
) -> None:
    """INV-124: the default store is projected first, so one commit lies between the two."""
    events = a_run(HOME, FRAMES)
    shard = events[0].stream.shard
    inside = [event for event in events if event.stream.shard == shard]
    await record(ledger, inside)
    killed = await asyncio.to_thread(testbed.noetl, "projections", "run", fault=f"{point}=kill")
    assert killed.returncode == -signal.SIGKILL
    done = len(inside) if point == "project.after_commit" else 0
    at = [(await store.checkpoints()).positions[shard] for store in (testbed.default, testbed.analytics)]
    assert at == [done, 0]
    await asyncio.to_thread(testbed.clean)
    if done:
        # Now the default store has nothing left to do, and the other one is killed in the middle of its own.
        killed = await asyncio.to_thread(testbed.noetl, "projections", "run", fault="project.before_commit=kill")
        assert killed.returncode == -signal.SIGKILL
        assert await testbed.analytics.checkpoints() == Mark.zero()
    assert (await asyncio.to_thread(testbed.noetl, "projections", "run")).returncode == 0
    await testbed.proven(ledger)


async def test_projectors_share_the_shards_of_both_stores(
    testbed: ProjectorTestbed, ledger: PostgresLedger, begin: Begin
) -> None:
    """INV-124: each store has leases of its own, and a projector that is killed is replaced in both."""
    among = [begin(f"p{number}", **testbed.settings()) for number in range(2)]
    await asyncio.gather(*(asyncio.to_thread(each.until_it_has, 8) for each in among))
    await asyncio.gather(*(record(ledger, a_run(HOME, FRAMES)) for _ in range(RUNS)))
    among[0].end()
    await asyncio.gather(*(record(ledger, a_run(HOME, FRAMES)) for _ in range(RUNS)))
    head = await ledger.head()
    for store in (testbed.default, testbed.analytics):
        await reached(store, head, among[1])
    assert {key.projection for key in await stored_rows(testbed.analytics)} == {FRAME.projection}
    assert FRAME.projection not in {key.projection for key in await stored_rows(testbed.default)}
    among[1].end()
    await testbed.proven(ledger)
