"""The materializer: reads the stream in the shards it holds and writes each shard's events into the ledger, in
order.

In the write path `stream` it is the only writer. A batch and its checkpoint are one statement; messages are
acknowledged after it. `shadow` follows the stream in the same way. Failed batches are retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Protocol

import asyncpg
import orjson

from noetl.errors import LeaseLost, NoetlError
from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import Database, translated
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.encoding import leaf_of_body
from noetl.kernel.stream.port import Delivery, EventStream
from noetl.kernel.stream.write_path.written_messages import WrittenPlaces
from noetl.model.lease import Proof

_log = logging.getLogger(__name__)

BATCH_EVENTS = 500
WAIT_SECONDS = 1.0
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)

Work = Callable[[int, str, Sequence[Delivery]], Awaitable[None]]
"""Is given a shard, the making of the stream, and what was delivered of it."""


class Places(Protocol):
    """What knows up to which message a shard was worked off, where it matters that a stream loses messages."""

    async def begin(self, shard: int, created: str, durable: str) -> None:
        """See that a durable goes on behind what was worked off."""
        ...

    async def stands(self, shard: int, created: str) -> bool:
        """Tell whether the stream is still the same, and has the message that was worked off last."""
        ...


class ShardFollowing:
    """The readers of one process, one per shard it holds, each a durable of its own."""

    def __init__(self, stream: EventStream, durable: str, work: Work, places: Places | None = None) -> None:
        self._stream = stream
        self._durable = durable
        self._work = work
        self._places = places
        self._failures: dict[int, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def hold(self, shards: frozenset[int]) -> None:
        """Work on these shards, and on no others."""
        for shard in self._tasks.keys() - shards:
            self._tasks.pop(shard).cancel()
        loop = asyncio.get_running_loop()
        for shard in shards - self._tasks.keys():
            self._tasks[shard] = loop.create_task(self._follow(shard), name=f"noetl-{self._durable}-{shard}")

    async def stop(self) -> None:
        """Stop; what was not acknowledged is given to whoever holds the shard next."""
        tasks, self._tasks = list(self._tasks.values()), {}
        await ended(*tasks)

    def _is_ours(self, shard: int) -> bool:
        """Tell whether the task that asks is the one that reads the shard: one that was cancelled may not have noticed."""
        return self._tasks.get(shard) is asyncio.current_task()

    async def _follow(self, shard: int) -> None:
        while self._is_ours(shard):
            try:
                await self._read(shard)
            except Exception as problem:
                failures = self._failures.get(shard, 0)
                self._failures[shard] = failures + 1
                if failures == 0:
                    trace = None if isinstance(problem, NoetlError) else problem
                    _log.warning("%s waits with shard %d: %s", self._durable, shard, problem, exc_info=trace)
                await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])

    async def _read(self, shard: int) -> None:
        created, durable = (await self._stream.open()).created, f"{self._durable}-{shard}"
        if self._places is not None:
            await self._places.begin(shard, created, durable)
        subscription = await self._stream.subscribe(durable, [shard])
        try:
            # What is delivered is of the stream that was subscribed to, whichever was opened.
            if (await self._stream.state()).created != created:
                return
            while self._is_ours(shard):
                deliveries = await subscription.fetch(BATCH_EVENTS, WAIT_SECONDS)
                if not await self._goes_on(shard, created, deliveries):
                    return
                if deliveries:
                    await self._work(shard, created, deliveries)
                    reach("materialize.before_acknowledge")
                    await subscription.acknowledge(deliveries)
                    self._failures.pop(shard, None)
        finally:
            try:
                await subscription.close()
            except NoetlError:
                _log.debug("a subscription could not be closed", exc_info=True)

    async def _goes_on(self, shard: int, created: str, deliveries: Sequence[Delivery]) -> bool:
        """Tell whether what was delivered follows what was worked off."""
        if self._places is not None:
            return await self._places.stands(shard, created)
        return bool(deliveries) or (await self._stream.state()).created == created


_WRITE = "SELECT written, repeated, last_position FROM noetl.materialize($1, $2, $3, $4, $5, $6, $7, $8)"


class NotHeldError(asyncpg.PostgresError):
    """What the database says to a materializer whose shard another one has; the driver raises it by its code."""

    sqlstate: ClassVar[str] = "NE002"


class Materializer:
    """Writes the shards it holds; `proof` says under which leases."""

    def __init__(
        self,
        database: Database,
        stream: EventStream,
        proof: Callable[[int], Proof | None],
        written: Callable[[set[int]], None] = lambda shards: None,
        count: Callable[[int], None] = lambda events: None,
    ) -> None:
        self._database = database
        self._stream = stream
        self._token = proof
        self._written = written
        self._count = count
        self._places = WrittenPlaces(database, stream, proof)
        self._following = ShardFollowing(stream, "materializer", self._materialize, self._places)

    def hold(self, shards: frozenset[int]) -> None:
        """Work on these shards, and on no others."""
        self._following.hold(shards)

    async def stop(self) -> None:
        """Stop; what is under way is delivered again to whoever holds the shard next."""
        await self._following.stop()

    async def _materialize(self, shard: int, created: str, deliveries: Sequence[Delivery]) -> None:
        proof = self._token(shard)
        if proof is None:
            raise LeaseLost(f"shard {shard} is not held here")
        bodies = [one.message.body for one in deliveries if one.message.body]
        rows = b"[" + b",".join(bodies) + b"]"
        last = deliveries[-1]
        arguments = (
            self._stream.name, created, shard, last.sequence, last.message.message_id, proof.token, rows.decode(),
            b"".join(map(leaf_of_body, bodies)),
        )  # fmt: skip
        reach("materialize.before_write")
        try:
            row = await self._write(arguments)
        except asyncpg.CheckViolationError:
            await self._make_partitions(deliveries)
            row = await self._write(arguments)
        reach("materialize.after_write")
        self._places.moved(shard, created, last)
        self._count(row["written"])
        if row["written"]:
            self._written({shard})

    async def _write(self, arguments: tuple[Any, ...]) -> Any:
        try:
            async with self._database.transaction(None, "materializer") as connection:
                return await connection.fetchrow(_WRITE, *arguments)
        except NotHeldError as problem:
            raise LeaseLost(str(problem)) from problem

    async def _make_partitions(self, deliveries: Sequence[Delivery]) -> None:
        ids = {orjson.loads(one.message.body)["execution_id"] for one in deliveries if one.message.body}
        with translated():
            async with self._database.transaction(None, "materializer") as connection:
                await connection.executemany(
                    "SELECT noetl.ensure_event_partition($1)", [(execution_id,) for execution_id in ids]
                )
