"""What shadows found so far, shard by shard, and whether that proves that a materializer would write the same ledger.

A proof covers every event written since the shadow began. What was compared in part, or not at all, proves nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.leases.shards import holders
from noetl.ledger.database import Database

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
