"""Which process works on which shards: each keeps a fair share by lease, and fences what it writes by the lease's token.

Database clock for the leases; a local deadline before their end for the holder that cannot renew. It moves shards between
processes and never looks at events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Final, Literal

import asyncpg
import msgspec

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.leases import operations
from noetl.kernel.leases.heartbeats import stop_at
from noetl.kernel.leases.kinds import SHARD
from noetl.kernel.ledger.postgres.database import Connection, Database, Role
from noetl.model.lease import Proof
from noetl.model.stream import SHARD_COUNT

_log = logging.getLogger(__name__)

ShardRole = Literal["relay", "projector", "materializer", "shadow"]
_LOGINS: Final[dict[ShardRole, Role]] = {
    "relay": "relay", "projector": "projector", "materializer": "materializer", "shadow": "materializer",
}  # fmt: skip

_IN_A_HURRY: Final = 0.1
"""Part of the interval after which one who lacks shards, or could not ask, looks again."""
_ANSWER_SECONDS: Final = 5.0
"""How long an answer is waited for on one connection before another one is tried; the deadline does not wait for it."""

_HERE = """
INSERT INTO noetl.shard_holder (role, holder) VALUES ($1, $2)
ON CONFLICT (role, holder) DO UPDATE SET heartbeat_at = clock_timestamp()
"""
_FORGET = """
DELETE FROM noetl.shard_holder WHERE (role, holder) IN (
    SELECT role, holder FROM noetl.shard_holder
    WHERE role = $1 AND heartbeat_at < clock_timestamp() - 20 * $2::interval FOR UPDATE SKIP LOCKED)
"""
# Ranked by age: whoever comes moves nobody else's rank.
_LIVE = """
SELECT holder FROM noetl.shard_holder
WHERE role = $1 AND (holder = $3 OR heartbeat_at > clock_timestamp() - $2::interval) ORDER BY started_at, holder
"""
_NEXT_END = f"""
SELECT extract(epoch FROM min({SHARD.until}) - clock_timestamp())::float8 FROM noetl.shard_lease
WHERE role = $1 AND NOT coalesce({SHARD.token} = ANY ($2), false)
"""  # noqa: S608
_GONE = "DELETE FROM noetl.shard_holder WHERE role = $1 AND holder = $2"
_LIVING = """
SELECT holder FROM noetl.shard_holder
WHERE role = $1 AND heartbeat_at > clock_timestamp() - make_interval(secs => $2) ORDER BY holder
"""
_HOLDERS = f"""
SELECT role, shard, holder, attempt, extract(epoch FROM clock_timestamp() - heartbeat_at)::float8 AS heartbeat_age_seconds
FROM noetl.shard_lease WHERE {SHARD.lasts()} ORDER BY role, shard
"""  # noqa: S608


Neighbours = Callable[[Callable[[], None]], AbstractAsyncContextManager[Callable[[], None]]]
"""Opens a quick way to the others of a role: takes what is called when one of them tells that shards moved, gives what
tells them. It may fail silently: then each sees at its next look what became of the shards.
"""


class ShardHolder(msgspec.Struct, frozen=True):
    """Who has a shard in a role, by which take-over, and how long ago that was last confirmed."""

    role: ShardRole
    shard: int
    holder: str
    attempt: int
    heartbeat_age_seconds: float


class ShardLeases:
    """The shards of one process in one role. Two processes of the same name count as one: the later one stands by."""

    def __init__(
        self,
        database: Database,
        role: ShardRole,
        holder: str,
        *,
        lease_seconds: float = 15.0,
        every_seconds: float = 3.0,
        neighbours: Neighbours | None = None,
    ) -> None:
        self._database = database
        self._role: ShardRole = role
        self._holder = holder
        self._lease = timedelta(seconds=lease_seconds)
        self._every_seconds = every_seconds
        self._proofs: dict[int, Proof] = {}
        self._deadline = 0.0
        self._told: frozenset[int] = frozenset()
        self._changed: Callable[[frozenset[int]], None] = lambda _: None
        self._neighbours = neighbours
        self._way = AsyncExitStack()
        self._tell_others: Callable[[], None] = lambda: None
        self._stopping = False
        self._sooner = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def held(self) -> frozenset[int]:
        """The shards that this process may work on now."""
        # Not the loop's time, which may stand still while this process is stopped.
        return frozenset(self._proofs) if time.monotonic() < self._deadline else frozenset()

    def proof(self, shard: int) -> Proof | None:
        """Return what fences writes for a shard, or None when it is not held."""
        return self._proofs.get(shard) if shard in self.held else None

    async def start(self, changed: Callable[[frozenset[int]], None]) -> None:
        """Take what is free of a fair share and keep to it until stopped; `changed` gets the shards whenever they change.

        A shard that is gone from them belongs to another one from then on: its work is to be cancelled, that of the
        others goes on.
        """
        self._changed = changed
        pause = await self._look()
        if self._neighbours is not None:
            self._tell_others = await self._way.enter_async_context(self._neighbours(self._sooner.set))
            # It came: whoever has more than its share now gives some of it.
            self._tell_others()
        self._looking = asyncio.create_task(self._keep(pause), name=f"noetl-shards-{self._role}")

    async def stop(self) -> None:
        """Give all shards back at once."""
        self._stopping = True
        self._sooner.set()
        if self._looking is not None:
            await self._looking
        if self._expiry is not None:
            self._expiry.cancel()
        proofs, self._proofs = self._proofs, {}
        self._tell()
        try:
            async with self._transaction() as connection:
                await operations.give_back(connection, SHARD, list(proofs.values()))
                await connection.execute(_GONE, self._role, self._holder)
        except (NoetlError, asyncpg.PostgresError) as problem:
            _log.warning("shards %s could not be given back, so others wait for them: %s", sorted(proofs), problem)
        else:
            self._tell_others()
        await self._way.aclose()

    async def _keep(self, pause: float) -> None:
        away = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._sooner.wait()
            if self._stopping:
                return
            self._sooner.clear()
            try:
                pause = await self._look()
            except Exception as problem:
                known = isinstance(problem, NoetlError | asyncpg.PostgresError)
                if not away:
                    # Told once: an absence of half a minute is hundreds of tries.
                    _log.warning("leases on shards are not renewed, trying again: %s", problem, exc_info=not known)
                away, pause = True, self._every_seconds * _IN_A_HURRY
            else:
                if away:
                    _log.info("%s renews its leases as %s again", self._holder, self._role)
                away = False

    async def _look(self) -> float:
        """Renew, take what is free or give back what is too much, and return after how long to look again."""
        before = time.monotonic()
        role, lease = self._role, self._lease
        async with self._transaction() as connection:
            await connection.execute(_HERE, role, self._holder)
            await connection.execute(_FORGET, role, lease)
            live = [row["holder"] for row in await connection.fetch(_LIVE, role, lease, self._holder)]
            held, seconds = list(self._proofs.values()), lease.total_seconds()
            mine = list(await operations.renew(connection, SHARD, held, [seconds] * len(held)))
            share = fair_share(len(live), live.index(self._holder))
            if len(mine) < share:
                # What others still fence with is locked, and left for the next look.
                taken = await operations.claim(
                    connection, SHARD, seconds, share - len(mine), within=(role,), holder=self._holder
                )
                mine += [proof for proof, _ in taken]
            proofs: dict[int, Proof] = {proof.key[1]: proof for proof in mine}
            next_end = await connection.fetchval(_NEXT_END, role, [proof.token for proof in mine])
        surplus = dict(sorted(proofs.items())[share:])
        self._hold({shard: proof for shard, proof in proofs.items() if shard not in surplus}, before)
        if surplus:
            # Only now: whoever takes them next must not find this process at work.
            async with self._transaction() as connection:
                await operations.give_back(connection, SHARD, list(surplus.values()))
            self._tell_others()
        soon = self._every_seconds * _IN_A_HURRY
        if len(proofs) < share:
            return soon
        return self._every_seconds if next_end is None else min(self._every_seconds, max(next_end, soon))

    def _hold(self, proofs: dict[int, Proof], since: float) -> None:
        """Take note of leases that began at `since` or later, and let go of them in time unless they are renewed."""
        gone = frozenset(shard for shard in self._told if proofs.get(shard) != self._proofs.get(shard))
        self._proofs = proofs
        self._deadline = stop_at(since, self._lease.total_seconds())
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(max(0, self._deadline - time.monotonic()), self._expire)
        if gone:
            # Told by itself, as a shard that came back under another token was somebody else's in between.
            _log.info("%s no longer has shards %s as %s", self._holder, sorted(gone), self._role)
            self._told -= gone
            self._changed(self._told)
        self._tell()

    def _expire(self) -> None:
        if self._told:
            _log.warning("%s could not renew its leases in time and stops work on its shards", self._holder)
        self._tell()

    def _tell(self) -> None:
        held = self.held
        if held != self._told:
            self._told = held
            self._changed(held)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        try:
            async with (
                asyncio.timeout(_ANSWER_SECONDS),
                self._database.transaction(None, _LOGINS[self._role]) as connection,
            ):
                yield connection
        except TimeoutError:
            raise Unavailable(f"PostgreSQL did not answer within {_ANSWER_SECONDS:g} s") from None


def fair_share(holders: int, rank: int) -> int:
    """Return how many shards the holder of a rank gets: all shares together are all shards, none differs by two."""
    return SHARD_COUNT // holders + (rank < SHARD_COUNT % holders)


async def fenced(connection: Connection, proof: Proof) -> bool:
    """Tell whether a shard is held, and let nobody else take it before the open transaction ends."""
    return bool(await operations.hold(connection, SHARD, [proof]))


async def fenced_of(connection: Connection, proofs: Mapping[int, Proof]) -> frozenset[int]:
    """Return which of the shards are held, and let nobody else take those before the open transaction ends."""
    held = await operations.hold(connection, SHARD, list(proofs.values()))
    return frozenset(shard for shard, proof in proofs.items() if proof in held)


async def holders(database: Database) -> list[ShardHolder]:
    """Return who has which shard in which role now."""
    async with database.transaction(None) as connection:
        return [ShardHolder(**dict(row)) for row in await connection.fetch(_HOLDERS)]


async def living(database: Database, role: ShardRole, lease_seconds: float) -> list[str]:
    """Return who has said within the lease that it is there for a role, with shards or without."""
    async with database.transaction(None) as connection:
        return [row["holder"] for row in await connection.fetch(_LIVING, role, float(lease_seconds))]
