"""A materializer in the shadow of the ledger: it makes each row it would write and compares it with the one that stands.

It writes nothing but what it found. No difference over real work is what allows the write path to become `stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import orjson

from noetl.errors import LeaseLost
from noetl.ledger.database import Connection, Database
from noetl.ledger.normalizer import normalize
from noetl.ledger.shard_leases import fenced
from noetl.model.event import Event
from noetl.stream.encoding import decode
from noetl.stream.following import ShardFollowing
from noetl.stream.port import Delivery, EventStream
from noetl.stream.row_body import ROW_COLUMNS

_ROWS = f"""
SELECT e.tenant_id, e.organization_id, e.stream_id, e.stream_version, {", ".join(f"e.{name}" for name in ROW_COLUMNS)}
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS asked (execution_id, event_id, tenant_id, organization_id)
JOIN noetl.event AS e USING (execution_id, event_id, tenant_id, organization_id)
"""  # noqa: S608
_KNOWN = "SELECT sequence FROM noetl.divergence WHERE shard = $1"
_NOTE = """
INSERT INTO noetl.divergence AS known (shard, sequence, seen, equal, missing, different, redelivered, first)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb)
ON CONFLICT (shard) DO UPDATE SET sequence = greatest(known.sequence, excluded.sequence), seen = known.seen + excluded.seen,
    equal = known.equal + excluded.equal, missing = known.missing + excluded.missing,
    different = known.different + excluded.different, redelivered = known.redelivered + excluded.redelivered,
    first = coalesce(known.first, excluded.first), updated_at = clock_timestamp()
"""
_REPORT = (
    "SELECT shard, sequence, seen, equal, missing, different, redelivered, first FROM noetl.divergence ORDER BY shard"
)


class Divergence(msgspec.Struct, frozen=True):
    """What was found in a shard. `missing` are events that only one side has, `different` rows of other bytes."""

    shard: int
    position: int
    head: int
    seen: int
    equal: int
    missing: int
    different: int
    redelivered: int
    first: dict[str, Any] | None

    @property
    def diverges(self) -> bool:
        """Whether the materializer would have written something else."""
        return self.missing + self.different > 0


class Shadow:
    """Compares the shards it holds."""

    def __init__(self, database: Database, stream: EventStream, token: Callable[[int], UUID | None]) -> None:
        self._database = database
        self._token = token
        self._following = ShardFollowing(stream, "shadow", self._compare)

    def hold(self, shards: frozenset[int]) -> None:
        """Work on these shards, and on no others."""
        self._following.hold(shards)

    async def stop(self) -> None:
        """Stop; what was not acknowledged is compared again."""
        await self._following.stop()

    async def _compare(self, shard: int, _created: str, deliveries: Sequence[Delivery]) -> None:
        events = [decode(one.message.body) for one in deliveries]
        token = self._token(shard)
        async with self._database.transaction(None, "materializer") as connection:
            if token is None or not await fenced(connection, "materializer", shard, token):
                raise LeaseLost(f"shard {shard} belongs to another materializer now")
            last = await connection.fetchval(_KNOWN, shard) or 0
            found = await _standing(connection, events)
            counts = {"equal": 0, "missing": 0, "different": 0, "redelivered": 0}
            first: dict[str, Any] | None = None
            for event in events:
                kind, said = _judged(event, last, found)
                for one in kind:
                    counts[one] += 1
                last = max(last, event.position)
                first = first or said
            told = None if first is None else orjson.dumps(first).decode()
            await connection.execute(_NOTE, shard, last, len(events), *counts.values(), told)


def _judged(event: Event, last: int, found: dict[Any, Any]) -> tuple[list[str], dict[str, Any] | None]:
    """Say how an event compares, and what to tell of it if it does not."""
    place = {"event_id": str(event.event_id), "position": event.position, "event_type": event.event_type}
    if event.position <= last:
        return ["redelivered"], None
    kinds, said = [], None
    if last and event.position > last + 1:
        kinds.append("missing")
        said = place | {"what": f"positions {last + 1} to {event.position - 1} never came through the stream"}
    row = found.get((event.execution_id, event.event_id, event.tenant_id, event.organization_id))
    if row is None:
        return [*kinds, "missing"], said or place | {"what": "the ledger lacks this event"}
    own = (event.stream_id, event.stream_version, *normalize(event))
    names = ("stream_id", "stream_version", *ROW_COLUMNS)
    differing = [name for name, ours, theirs in zip(names, own, row, strict=True) if ours != theirs]
    if differing:
        return [*kinds, "different"], said or place | {"what": f"other bytes in {', '.join(differing)}"}
    return [*kinds, "equal"], said


async def _standing(connection: Connection, events: Sequence[Event]) -> dict[Any, Any]:
    columns = zip(*((e.execution_id, e.event_id, e.tenant_id, e.organization_id) for e in events), strict=True)
    rows = await connection.fetch(_ROWS, *map(list, columns))
    return {
        (row["execution_id"], row["event_id"], row["tenant_id"], row["organization_id"]): tuple(row.values())[2:]
        for row in rows
    }


async def divergence(database: Database) -> list[Divergence]:
    """Return what materializers in shadow found so far, shard by shard."""
    async with database.transaction(None) as connection:
        heads = {
            row["shard"]: row["position"] for row in await connection.fetch("SELECT shard, position FROM noetl.shard")
        }
        rows = await connection.fetch(_REPORT)
    return [
        Divergence(
            row["shard"], row["sequence"], heads[row["shard"]], row["seen"], row["equal"], row["missing"], row["different"],
            row["redelivered"], None if row["first"] is None else orjson.loads(row["first"]),
        )
        for row in rows
    ]  # fmt: skip
