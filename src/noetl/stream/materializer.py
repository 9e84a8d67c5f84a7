"""The materializer: what was published is written into the ledger, shard by shard, in the order of the stream.

In the write path `stream` it is the only writer. A batch and its checkpoint are one statement, and the messages are
acknowledged after it: what is delivered again is found in the ledger and left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import asyncpg
import orjson

from noetl.errors import LeaseLost
from noetl.faults import reach
from noetl.ledger.database import Database, translated
from noetl.model.lease import Proof
from noetl.stream.following import ShardFollowing
from noetl.stream.port import Delivery, EventStream
from noetl.stream.row_body import leaf_of_body
from noetl.stream.written import WrittenPlaces

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
