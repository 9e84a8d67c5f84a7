"""Projectors come, go, die and fall silent while a run goes on; what they leave is what one fold of the ledger says."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.faults.projectors.processes import PATIENCE, ProjectorProcess

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.model.event import Draft
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT
from noetl.testing.samples.projected_ledger import HOME, a_run, pure_rows, record, stored_rows

pytestmark = [pytest.mark.service, pytest.mark.fault]

RUNS, FRAMES = 24, 42
_OPEN = """
SELECT count(*) FROM noetl.event AS e WHERE starts_with(stream_id, 'execution/') AND position > (
    SELECT coalesce(max(position), 0) FROM noetl.projection_epoch AS p WHERE p.shard = e.shard)
"""
Begin = Callable[..., ProjectorProcess]
Moves = Callable[[], dict[int, list[tuple[int, int]]]]


class Writing:
    """Runs whose loops are written in parts, so that something can happen between two of them."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self._ledger = ledger
        self._runs = [a_run(HOME, FRAMES) for _ in range(RUNS)]

    @property
    def events(self) -> int:
        """How many events there are in all."""
        return sum(map(len, self._runs))

    async def part(self, number: int, of: int) -> Mark:
        """Append one part of every run and return how far the ledger is."""

        def cut(run: list[Draft]) -> list[Draft]:
            return run[len(run) * number // of : len(run) * (number + 1) // of]

        await asyncio.gather(*(record(self._ledger, cut(run)) for run in self._runs))
        return await self._ledger.head()


async def covered(store: PostgresProjectionStore, mark: Mark, among: list[ProjectorProcess]) -> None:
    """Wait until the projections are at a mark; the database is asked again and again, since others move them."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await store.checkpoints()).covers(mark):
                pass
    except TimeoutError:
        pytest.fail("\n".join(each.said() for each in among))


async def all_told(database: Database) -> None:
    """Wait until the epochs cover everything of executions, also what those who are gone left open."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with database.transaction(None, "projector") as connection:
                if not await connection.fetchval(_OPEN):
                    return


async def shared(among: list[ProjectorProcess], each_has: int) -> None:
    """Wait until these projectors have so many shards each."""
    settled = await asyncio.gather(*(asyncio.to_thread(each.until_it_has, each_has) for each in among))
    assert all(settled), "\n".join(each.said() for each in among)


def all_shards(among: list[ProjectorProcess]) -> list[int]:
    return sorted(shard for each in among for shard in each.shards)


async def test_every_projection_equals_a_replay_whatever_becomes_of_the_projectors(
    database: Database, ledger: PostgresLedger, begin: Begin, moves: Moves
) -> None:
    store, writing = PostgresProjectionStore(database), Writing(ledger)
    four = [begin(f"noetl-projector-{number}") for number in range(4)]
    await shared(four, 4)
    assert all_shards(four) == list(range(SHARD_COUNT))
    await writing.part(0, 5)

    killed, silent, leaving, staying = four
    killed.process.kill()
    await covered(store, await writing.part(1, 5), four)
    silent.process.send_signal(signal.SIGSTOP)
    await writing.part(2, 5)
    await shared([leaving, staying], 8)
    silent.process.send_signal(signal.SIGCONT)
    added = begin("noetl-projector-4")
    await covered(store, await writing.part(3, 5), [*four, added])
    leaving.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(leaving.process.wait, PATIENCE) == 0, leaving.said()
    again = begin(killed.name)
    left = [silent, staying, added, again]
    await covered(store, await writing.part(4, 5), left)

    await shared(left, 4)
    assert all_shards(left) == list(range(SHARD_COUNT))
    assert await stored_rows(store) == await pure_rows(ledger, built_in_folds())
    head = await ledger.head()
    assert sum(head.positions) == writing.events > 2_000
    await all_told(database)
    for shard, made in moves().items():
        assert made[0][0] == 0
        assert made[-1][1] == head.positions[shard]
        assert all(one[1] == other[0] for one, other in pairwise(made)), f"shard {shard} moved out of order: {made}"
