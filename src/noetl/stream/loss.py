"""What became of acknowledged facts: in the ledger, in the stream alone, or gone from both.

A fact is in the stream if its message stands at its place. A sequence alone tells nothing: a stream that lost its last
messages gives the same sequences out again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from noetl.errors import NotFound
from noetl.ledger.database import Database
from noetl.model.stream import Scope
from noetl.stream.journal import Noted
from noetl.stream.port import EventStream, Place

_KNOWN = """
SELECT e.execution_id, e.event_id FROM unnest($1::bigint[], $2::bigint[]) AS asked (execution_id, event_id)
JOIN noetl.event AS e USING (execution_id, event_id)
"""
_ASKED_TOGETHER = 5_000


class Unwritten(msgspec.Struct, frozen=True):
    """Acknowledged facts that are not in the ledger: gone, or in the stream and on their way."""

    lost: list[Noted]
    in_stream: list[Noted]
    noted: int = 0
    """How many facts were looked for, where all that a node has noted were."""


async def unwritten_of(
    database: Database,
    stream: EventStream,
    noted: Sequence[Noted],
    doubtful: Callable[[Noted], bool] = lambda _: True,
) -> Unwritten:
    """Return which of the facts are not in the ledger; the stream is asked for the doubtful ones, the others count as there."""
    missing = await missing_of(database, noted)
    asked = [one for one in missing if doubtful(one)]
    standing = await _standing(stream, [one.place for one in asked])
    # What was written and trimmed while the stream was asked is not gone.
    lost = await missing_of(database, [one for one in asked if standing.get(one.place) != one.message_id])
    gone = {one.message_id for one in lost}
    return Unwritten(lost, [one for one in missing if one.message_id not in gone])


async def missing_of(database: Database, noted: Sequence[Noted]) -> list[Noted]:
    """Return those of the facts that the ledger does not have."""
    known = await _in_ledger(database, noted)
    return [one for one in noted if (one.scope, one.execution_id, one.event_id) not in known]


async def _in_ledger(database: Database, noted: Sequence[Noted]) -> set[tuple[Scope, int, int]]:
    by_scope: dict[Scope, list[Noted]] = defaultdict(list)
    for one in noted:
        by_scope[one.scope].append(one)
    found: set[tuple[Scope, int, int]] = set()
    for scope, mine in by_scope.items():
        for start in range(0, len(mine), _ASKED_TOGETHER):
            some = mine[start : start + _ASKED_TOGETHER]
            async with database.transaction(scope) as connection:
                rows = await connection.fetch(
                    _KNOWN, [one.execution_id for one in some], [one.event_id for one in some]
                )
            found |= {(scope, row["execution_id"], row["event_id"]) for row in rows}
    return found


async def _standing(stream: EventStream, places: Sequence[Place]) -> dict[Place, str]:
    try:
        return await stream.ids_at(places) if places else {}
    except NotFound:
        return {}
