"""Shards among processes: fair shares, handing over, giving back, and writes that only a holder can make."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import Unavailable
from noetl.kernel.leases.shards import Neighbours, ShardLeases, fair_share, fenced, holders
from noetl.kernel.ledger.postgres.database import Connection, Database, Role
from noetl.kernel.stream.hints import Make, MemoryHints
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.runtime.streams.hints import passing

ALL = frozenset(range(SHARD_COUNT))
LEASE = 1.5
BUSY_SECONDS = 5.0
"""What a machine with much else to do may take on top of any time."""


class Cuttable(Database):
    """A database that a process may lose its way to."""

    cut = False

    @asynccontextmanager
    async def transaction(self, scope: Scope | None, role: Role = "runtime") -> AsyncIterator[Connection]:
        if self.cut:
            raise Unavailable("the way to the database is cut")
        async with super().transaction(scope, role) as connection:
            yield connection


class Crowd:
    """Processes that share the shards of a role; it notes when two have the same one and how long any had none."""

    lease_seconds = LEASE
    every_seconds = 0.2
    neighbours: Neighbours | None = None

    def __init__(self, url: str) -> None:
        self._url = url
        self.members: dict[str, tuple[ShardLeases, Cuttable]] = {}
        self.held: dict[str, frozenset[int]] = {}
        self.twice: list[str] = []
        self.longest_idle = 0.0
        self._idle_since = dict.fromkeys(ALL, time.monotonic())
        self._moved = asyncio.Event()

    async def join(self, name: str) -> ShardLeases:
        database = Cuttable(self._url, as_roles=True)
        leases = ShardLeases(
            database, "relay", name, lease_seconds=self.lease_seconds, every_seconds=self.every_seconds,
            neighbours=self.neighbours,
        )  # fmt: skip
        self.members[name] = leases, database

        def changed(held: frozenset[int]) -> None:
            before, now = self.held.get(name, frozenset()), time.monotonic()
            self.held[name] = held
            for shard in before - held:
                self._idle_since[shard] = now
            for shard in held - before:
                self.longest_idle = max(self.longest_idle, now - self._idle_since[shard])
                others = [other for other, theirs in self.held.items() if other != name and shard in theirs]
                self.twice += [f"{shard}: {name} and {other}" for other in others]
            self._moved.set()

        await leases.start(changed)
        return leases

    async def leave(self, name: str) -> None:
        leases, database = self.members.pop(name)
        await leases.stop()
        await database.close()

    def cut_off(self, name: str) -> None:
        self.members[name][1].cut = True

    async def settled(self, *names: str) -> None:
        """Wait until these and nobody else share all shards fairly."""
        wanted = sorted(fair_share(len(names), rank) for rank in range(len(names)))
        async with asyncio.timeout(30):
            while True:
                shares = {name: held for name, held in self.held.items() if held}
                if sorted(map(len, shares.values())) == [w for w in wanted if w] and shares.keys() <= set(names):
                    return
                self._moved.clear()
                await self._moved.wait()

    async def disperse(self) -> None:
        for name in list(self.members):
            await self.leave(name)


@pytest.fixture
async def crowd(owner_url: str) -> AsyncIterator[Crowd]:
    crowd = Crowd(owner_url)
    yield crowd
    await crowd.disperse()


@given(st.integers(1, 40))
def test_fair_shares_are_all_shards_and_differ_by_one_at_most(count: int) -> None:
    """INV-120."""
    shares = [fair_share(count, rank) for rank in range(count)]
    assert sum(shares) == SHARD_COUNT
    assert max(shares) - min(shares) <= 1


async def test_a_lone_process_has_all_shards_when_it_has_started(crowd: Crowd) -> None:
    leases = await crowd.join("a")
    assert leases.held == crowd.held["a"] == ALL
    await crowd.leave("a")
    assert (leases.held, crowd.held["a"], leases.proof(0)) == (frozenset(), frozenset(), None)


async def test_shards_go_to_whoever_comes_and_back_from_whoever_goes(crowd: Crowd, database: Database) -> None:
    for name in "abc":
        await crowd.join(name)
    await crowd.settled(*"abc")
    shown = await holders(database)
    assert {(one.shard, one.holder) for one in shown} == {(s, n) for n, held in crowd.held.items() for s in held}
    assert {one.role for one in shown} == {"relay"}
    assert all(0 <= one.heartbeat_age_seconds < LEASE for one in shown)
    assert all(one.attempt >= 1 for one in shown)

    await crowd.leave("b")
    await crowd.settled(*"ac")
    assert crowd.twice == []


async def test_whoever_is_told_that_shards_moved_does_not_wait_for_its_next_look(crowd: Crowd) -> None:
    """INV-130. Nobody looks by itself before the test is over."""
    hints = MemoryHints()
    crowd.lease_seconds, crowd.every_seconds = 1_000.0, 600.0
    crowd.neighbours = lambda heard: passing(hints, "shards", heard, 0.01)
    await crowd.join("a")
    await crowd.join("b")
    await crowd.settled(*"ab")
    await crowd.leave("a")
    await crowd.settled("b")
    assert crowd.twice == []


async def test_hints_that_vanish_cost_a_look_and_nothing_else(crowd: Crowd) -> None:
    """INV-130."""

    class Forgetful(MemoryHints):
        async def put(self, key: str, value: bytes) -> bool:
            return False

        async def change(self, key: str, make: Make) -> None:
            return None

    hints = Forgetful()
    crowd.neighbours = lambda heard: passing(hints, "shards", heard, 0.01)
    for name in "abc":
        await crowd.join(name)
    await crowd.settled(*"abc")
    await crowd.leave("b")
    await crowd.settled(*"ac")
    assert crowd.twice == []


async def test_whoever_cannot_renew_stops_before_others_take_over(crowd: Crowd) -> None:
    await crowd.join("a")
    lost = await crowd.join("b")
    await crowd.settled(*"ab")
    theirs = {shard: lost.proof(shard) for shard in crowd.held["b"]}

    crowd.cut_off("b")
    await crowd.settled("a")
    assert crowd.twice == []
    assert crowd.held["b"] == frozenset()

    crowd.members["b"][1].cut = False
    await crowd.settled(*"ab")
    assert crowd.twice == []
    assert all(lost.proof(shard) != proof for shard, proof in theirs.items())


async def test_a_second_process_of_the_same_name_stands_by(crowd: Crowd, owner_url: str) -> None:
    await crowd.join("a")
    twin_database = Database(owner_url, as_roles=True)
    twin = ShardLeases(twin_database, "relay", "a", lease_seconds=LEASE, every_seconds=0.2)
    await twin.start(lambda held: None)
    assert twin.held == frozenset()
    await twin.stop()
    await twin_database.close()
    assert crowd.held["a"] == ALL


async def test_roles_do_not_take_shards_from_each_other(crowd: Crowd, database: Database) -> None:
    await crowd.join("a")
    projector = ShardLeases(database, "projector", "a")
    await projector.start(lambda held: None)
    assert projector.held == crowd.held["a"] == ALL
    await projector.stop()


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_shard_is_held_twice_or_idle_for_long_while_processes_come_and_go(crowd: Crowd, seed: int) -> None:
    """INV-120."""
    chance = random.Random(seed)
    alive: list[str] = []
    for number in range(9):
        name = f"{chance.randrange(10)}-{number}"
        match "join" if len(alive) < 2 else chance.choice(["join", "leave", "cut"]):
            case "join":
                await crowd.join(name)
                alive.append(name)
            case "leave":
                await crowd.leave(alive.pop(chance.randrange(len(alive))))
            case "cut":
                crowd.cut_off(alive.pop(chance.randrange(len(alive))))
        if chance.random() < 0.6:
            await crowd.settled(*alive)
    await crowd.settled(*alive)
    assert crowd.twice == []
    assert crowd.longest_idle < LEASE + BUSY_SECONDS


async def test_a_write_is_fenced_by_the_token_and_by_the_end_of_the_lease(crowd: Crowd, database: Database) -> None:
    leases = await crowd.join("a")
    proof = leases.proof(3)
    assert proof is not None
    other = leases.proof(4)
    assert other is not None
    async with database.transaction(None, "relay") as connection:
        assert await fenced(connection, proof)
        assert not await fenced(connection, msgspec.structs.replace(proof, token=other.token))
    await crowd.leave("a")
    async with database.transaction(None, "relay") as connection:
        assert not await fenced(connection, proof)


async def test_nobody_takes_a_shard_while_a_fenced_write_is_open_and_others_are_renewed(
    crowd: Crowd, database: Database
) -> None:
    leases = await crowd.join("a")
    proof = leases.proof(3)
    assert proof is not None
    async with database.transaction(None, "relay") as connection:
        assert await fenced(connection, proof)
        await crowd.leave("a")
        successor = await crowd.join("b")
        assert successor.held == ALL - {3}
    await crowd.settled("b")


async def test_renewing_does_not_wait_for_a_fenced_write(crowd: Crowd, database: Database) -> None:
    leases = await crowd.join("a")
    proof = leases.proof(3)
    assert proof is not None
    async with database.transaction(None, "relay") as connection:
        assert await fenced(connection, proof)
        until = await connection.fetchval("SELECT min(lease_until) FROM noetl.shard_lease WHERE role = 'relay'")
        async with asyncio.timeout(LEASE + BUSY_SECONDS):
            while await connection.fetchval("SELECT min(lease_until) <= $1 FROM noetl.shard_lease", until):
                pass
    assert leases.held == ALL
    assert leases.proof(3) == proof
