"""A materializer in the shadow of the ledger: it makes each row it would write, compares it with the stored one, and
records what differs, shard by shard.

Only full coverage without a difference, over every event since the shadow began, allows the write path `stream`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.errors import LeaseLost
from noetl.kernel.leases.shards import fenced, holders
from noetl.kernel.ledger.normalizer import normalize
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.stream.encoding import decode
from noetl.kernel.stream.port import Delivery, EventStream
from noetl.kernel.stream.write_path.materializer import ShardFollowing
from noetl.model.envelope.columns import ROW_NAMES
from noetl.model.event import Event
from noetl.model.lease import Proof

Verdict = Literal["proven", "diverges", "unproven"]

_LOOK_SECONDS: Final = 0.05
_BEGIN = """
INSERT INTO noetl.divergence (shard, began) SELECT shard, position FROM noetl.shard ON CONFLICT (shard) DO NOTHING
"""
_BEGIN_ANEW = """
INSERT INTO noetl.divergence (shard, began) SELECT shard, position FROM noetl.shard ON CONFLICT (shard) DO UPDATE
SET began = excluded.began, seen = 0, compared = 0, equal = 0, missing = 0, different = 0, redelivered = 0, first = NULL,
    updated_at = clock_timestamp()
"""
_HEADS = "SELECT shard, position FROM noetl.shard ORDER BY shard"
_FOUND = """
SELECT shard, began, sequence, seen, compared, equal, missing, different, redelivered, first
FROM noetl.divergence ORDER BY shard
"""


class Divergence(msgspec.Struct, frozen=True):
    """What was found in a shard. `missing` are events that only one side has, `different` rows of other bytes.

    `seen`, `equal` and the others count what was in the stream before the shadow began, too; `compared` does not.
    """

    shard: int
    began: int
    position: int
    head: int
    seen: int
    compared: int
    equal: int
    missing: int
    different: int
    redelivered: int
    first: dict[str, Any] | None

    @property
    def diverges(self) -> bool:
        """Whether the materializer would have written something else."""
        return self.missing + self.different > 0

    @property
    def written(self) -> int:
        """How many events the ledger took since the shadow began."""
        return max(self.head, self.position, self.began) - self.began

    @property
    def behind(self) -> int:
        """How many of them the shadow has not come to."""
        return max(0, self.head - max(self.position, self.began))


def verdict(found: Sequence[Divergence]) -> Verdict:
    """Say whether the shards prove that both ways write the same; nothing compared, or not all, is no proof."""
    if any(one.diverges for one in found):
        return "diverges"
    compared = sum(one.compared for one in found)
    return "proven" if compared and not any(one.behind for one in found) else "unproven"


async def begin_comparing(database: Database) -> None:
    """Note where the ledger ends now in each shard as the shadow's beginning; one that was noted before stands."""
    async with database.transaction(None, "materializer") as connection:
        await connection.execute(_BEGIN)


async def begin_anew(database: Database) -> None:
    """Forget what was found: the shadow begins at the ledger's end."""
    async with database.transaction(None, "materializer") as connection:
        await connection.execute(_BEGIN_ANEW)


async def divergence(database: Database, within_seconds: float = 0.0) -> list[Divergence]:
    """Return what shadows found of all that is in the ledger now, shard by shard; nothing where none ever began.

    As long as a shadow runs, it is given some seconds to come to the end of what there is.
    """
    async with database.transaction(None) as connection:
        heads = {row["shard"]: row["position"] for row in await connection.fetch(_HEADS)}
    deadline = time.monotonic() + within_seconds
    while True:
        found = await _found(database, heads)
        if not any(one.behind for one in found) or time.monotonic() >= deadline:
            return found
        if not any(one.role == "shadow" for one in await holders(database)):
            return found
        await asyncio.sleep(_LOOK_SECONDS)


async def _found(database: Database, heads: Mapping[int, int]) -> list[Divergence]:
    async with database.transaction(None) as connection:
        rows = await connection.fetch(_FOUND)
    return [
        Divergence(
            row["shard"], row["began"], row["sequence"], heads[row["shard"]], row["seen"], row["compared"], row["equal"],
            row["missing"], row["different"], row["redelivered"],
            None if row["first"] is None else orjson.loads(row["first"]),
        )
        for row in rows
    ]  # fmt: skip


_ROWS = f"""
SELECT e.tenant_id, e.organization_id, e.stream_id, e.stream_version, {", ".join(f"e.{name}" for name in ROW_NAMES)}
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS asked (execution_id, event_id, tenant_id, organization_id)
JOIN noetl.event AS e USING (execution_id, event_id, tenant_id, organization_id)
"""  # noqa: S608
_KNOWN = "SELECT sequence, began FROM noetl.divergence WHERE shard = $1 FOR UPDATE"
# Months that were archived leave gaps between positions; only what is in the ledger can be missed.
_PASSED_OVER = "SELECT count(*) FROM noetl.event WHERE shard = $1 AND position > $2 AND position < $3"
_NOTE = """
UPDATE noetl.divergence SET sequence = greatest(sequence, $2), seen = seen + $3, compared = compared + $4, equal = equal + $5,
    missing = missing + $6, different = different + $7, redelivered = redelivered + $8,
    first = coalesce(first, $9::text::jsonb), updated_at = clock_timestamp()
WHERE shard = $1
"""


class Shadow:
    """Compares the shards it holds."""

    def __init__(self, database: Database, stream: EventStream, proof: Callable[[int], Proof | None]) -> None:
        self._database = database
        self._proof = proof
        self._following = ShardFollowing(stream, "shadow", self._compare)

    async def begin(self) -> None:
        """Note where the ledger ends, if no shadow did before: all that comes behind it is to be compared."""
        await begin_comparing(self._database)

    def hold(self, shards: frozenset[int]) -> None:
        """Work on these shards, and on no others."""
        self._following.hold(shards)

    async def stop(self) -> None:
        """Stop; what was not acknowledged is compared again."""
        await self._following.stop()

    async def _compare(self, shard: int, _created: str, deliveries: Sequence[Delivery]) -> None:
        events = [decode(one.message.body) for one in deliveries]
        proof = self._proof(shard)
        async with self._database.transaction(None, "materializer") as connection:
            if proof is None or not await fenced(connection, proof):
                raise LeaseLost(f"shard {shard} is compared by another process now")
            known = await connection.fetchrow(_KNOWN, shard)
            assert known is not None
            found = _Found(known["sequence"], known["began"])
            standing = await _standing(connection, events)
            for event in events:
                passed_over = 0
                if found.gap_before(event):
                    passed_over = await connection.fetchval(_PASSED_OVER, shard, found.place, event.position)
                found.take(event, standing.get(_key(event)), passed_over)
            await connection.execute(_NOTE, shard, *found.counts(len(events)))


class _Found:
    """What a batch of one shard comes to, behind what was compared before it."""

    def __init__(self, last: int, began: int) -> None:
        self._last = last
        self._began = began
        self._compared = self._equal = self._missing = self._different = self._redelivered = 0
        self._first: dict[str, Any] | None = None

    @property
    def place(self) -> int:
        """Behind which position every event has to come."""
        return max(self._last, self._began)

    def gap_before(self, event: Event) -> bool:
        """Tell whether positions were passed over that the shadow is to compare."""
        return event.position > self.place + 1

    def take(self, event: Event, row: tuple[Any, ...] | None, passed_over: int) -> None:
        """Compare an event with its row, if it has one; `passed_over` events of the ledger never came before it."""
        if event.position <= self._last:
            self._redelivered += 1
            return
        if passed_over:
            self._missing += passed_over
            self._tell(
                event, f"{passed_over} events between positions {self.place} and {event.position} never came through the stream"
            )  # fmt: skip
        self._last = event.position
        self._compared += event.position > self._began
        if row is None:
            self._missing += 1
            self._tell(event, "the ledger lacks this event")
        elif differing := _differing(event, row):
            self._different += 1
            self._tell(event, f"other bytes in {', '.join(differing)}")
        else:
            self._equal += 1

    def counts(self, seen: int) -> tuple[Any, ...]:
        """Return what is noted of the shard."""
        first = None if self._first is None else orjson.dumps(self._first).decode()
        return (
            self._last, seen, self._compared, self._equal, self._missing, self._different, self._redelivered, first,
        )  # fmt: skip

    def _tell(self, event: Event, what: str) -> None:
        self._first = self._first or {
            "event_id": str(event.event_id), "position": event.position, "event_type": event.event_type, "what": what,
        }  # fmt: skip


def _differing(event: Event, row: tuple[Any, ...]) -> list[str]:
    """Return the columns in which the row is other than the one that would be written."""
    own = (event.stream_id, event.stream_version, *normalize(event))
    names = ("stream_id", "stream_version", *ROW_NAMES)
    return [name for name, ours, theirs in zip(names, own, row, strict=True) if ours != theirs]


def _key(event: Event) -> tuple[int, int, str, str]:
    return event.execution_id, event.event_id, event.tenant_id, event.organization_id


async def _standing(connection: Connection, events: Sequence[Event]) -> dict[Any, tuple[Any, ...]]:
    rows = await connection.fetch(_ROWS, *map(list, zip(*map(_key, events), strict=True)))
    return {
        (row["execution_id"], row["event_id"], row["tenant_id"], row["organization_id"]): tuple(row.values())[2:]
        for row in rows
    }
