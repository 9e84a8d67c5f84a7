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


class Ground:
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
async def ground(
    owner_url: str, database: Database, fresh_databases: FreshDatabases, tmp_path: Path
) -> AsyncIterator[Ground]:
    name = fresh_databases.take()
    other = Database(fresh_databases.url(name), as_roles=True)
    ground = Ground(owner_url, fresh_databases.url(name), database, other, tmp_path)
    await ground.gate.open()
    yield ground
    await ground.gate.shut()
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
    ground: Ground, ledger: PostgresLedger, begin: Begin
) -> None:
    """INV-124."""
    projector = begin("one", **ground.settings(ground.gate.url))
    await record(ledger, a_run(HOME, FRAMES))
    there = await ledger.head()
    await reached(ground.default, there, projector)
    await reached(ground.analytics, there, projector)

    await ground.gate.shut()
    await asyncio.gather(*(record(ledger, a_run(HOME, FRAMES)) for _ in range(RUNS)))
    await reached(ground.default, await ledger.head(), projector)
    assert await ground.analytics.checkpoints() == there
    assert projector.process.poll() is None, projector.said()

    await ground.gate.open()
    await reached(ground.analytics, await ledger.head(), projector)
    projector.end()
    await ground.proven(ledger)


async def test_a_projector_starts_while_a_store_is_away_and_takes_it_up_later(
    ground: Ground, ledger: PostgresLedger, begin: Begin
) -> None:
    """INV-124."""
    away = ground.gate.url
    await ground.gate.shut()
    await record(ledger, a_run(HOME, FRAMES))
    projector = begin("one", **ground.settings(away))
    await reached(ground.default, await ledger.head(), projector)
    assert await ground.analytics.checkpoints() == Mark.zero()
    await ground.gate.open()
    await reached(ground.analytics, await ledger.head(), projector)
    projector.end()
    await ground.proven(ledger)


@pytest.mark.parametrize("point", POINTS)
async def test_killed_between_the_stores_each_is_whole_at_its_own_position(
    ground: Ground, ledger: PostgresLedger, point: str
) -> None:
    """INV-124: the default store is projected first, so one commit lies between the two."""
    events = a_run(HOME, FRAMES)
    shard = events[0].stream.shard
    inside = [event for event in events if event.stream.shard == shard]
    await record(ledger, inside)
    killed = await asyncio.to_thread(ground.noetl, "projections", "run", fault=f"{point}=kill")
    assert killed.returncode == -signal.SIGKILL
    done = len(inside) if point == "project.after_commit" else 0
    at = [(await store.checkpoints()).positions[shard] for store in (ground.default, ground.analytics)]
    assert at == [done, 0]
    await asyncio.to_thread(ground.clean)
    if done:
        # Now the default store has nothing left to do, and the other one is killed in the middle of its own.
        killed = await asyncio.to_thread(ground.noetl, "projections", "run", fault="project.before_commit=kill")
        assert killed.returncode == -signal.SIGKILL
        assert await ground.analytics.checkpoints() == Mark.zero()
    assert (await asyncio.to_thread(ground.noetl, "projections", "run")).returncode == 0
    await ground.proven(ledger)


async def test_projectors_share_the_shards_of_both_stores(ground: Ground, ledger: PostgresLedger, begin: Begin) -> None:
    """INV-124: each store has leases of its own, and a projector that is killed is replaced in both."""
    among = [begin(f"p{number}", **ground.settings()) for number in range(2)]
    await asyncio.gather(*(asyncio.to_thread(each.until_it_has, 8) for each in among))
    await asyncio.gather(*(record(ledger, a_run(HOME, FRAMES)) for _ in range(RUNS)))
    among[0].end()
    await asyncio.gather(*(record(ledger, a_run(HOME, FRAMES)) for _ in range(RUNS)))
    head = await ledger.head()
    for store in (ground.default, ground.analytics):
        await reached(store, head, among[1])
    assert {key.projection for key in await stored_rows(ground.analytics)} == {FRAME.projection}
    assert FRAME.projection not in {key.projection for key in await stored_rows(ground.default)}
    among[1].end()
    await ground.proven(ledger)
