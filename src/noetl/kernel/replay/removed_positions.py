"""Where positions of the ledger may have no event: in archives that the ledger itself says were removed.

A row of `noetl.event_archive` proves nothing, since whoever can change an event can write one. What counts are the events
`partition.archived` (which positions, how many events) and `archive.removed`, as far as they equal their leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from noetl.kernel.ledger.archive.rows import archive_rows
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.normalizer import leaf_of
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.replay.leaves import Following, Runs
from noetl.model.catalogue.retention import PartitionArchived
from noetl.model.event import Event
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope

_TOLD: Final = (
    f"SELECT {COLUMNS} FROM noetl.event WHERE execution_id = ANY ($1::bigint[])"  # noqa: S608
    " AND event_type IN ('partition.archived', 'archive.removed') ORDER BY stream_id, stream_version"
)


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the ledger that a check does not read, and how much of it there is by its events."""

    events: int
    bounds: dict[int, tuple[int, int]]
    proven: bool
    """Whether its events equal their leaves; otherwise it can only be from before links were kept."""

    def within(self, shard: int, chained_from: int) -> tuple[int, int]:
        """Return the positions of a shard that it may hold, as first and last; first is larger if there are none."""
        first, last = self.bounds.get(shard, (1, 0))
        return first, last if self.proven else min(last, chained_from - 1)


async def away(trees: Trees, scope: Scope | None) -> list[Away]:
    """Return what a check of an organization cannot read: its removed archives, and all archives of others.

    A check of all organizations reads all archives but those that were removed.
    """
    async with trees.database.transaction(None, "projector") as connection:
        rows = [row for row in await archive_rows(connection) if row.dropped]
        owners = {row.scope for row in rows}
        roots = [organization_root_id(owner.tenant_id, owner.organization_id) for owner in owners]
        told = to_events(await connection.fetch(_TOLD, roots))
    archived: dict[tuple[Scope, str], Event] = {}
    removed: dict[tuple[Scope, str], Event] = {}
    for event in told:
        kind = archived if event.event_type == "partition.archived" else removed
        kind[event.stream.scope, event.aggregate_id] = event
    found = []
    for row in rows:
        key = (row.scope, row.partition.name)
        needed = [archived.get(key)]
        if scope in (None, row.scope):
            needed.append(removed.get(key))
        backing = [event for event in needed if event is not None]
        if len(backing) == len(needed) and (part := await _away(trees, backing)) is not None:
            found.append(part)
    return found


async def _away(trees: Trees, backing: Sequence[Event]) -> Away | None:
    try:
        said = msgspec.convert(backing[0].meta, PartitionArchived, strict=False)
    except msgspec.ValidationError:
        return None
    proven = all([await _holds(trees, event) for event in backing])
    bounds = {int(shard): (int(first), int(last)) for shard, (first, last) in said.bounds.items()}
    return Away(events=said.events, bounds=bounds, proven=proven)


async def _holds(trees: Trees, event: Event) -> bool:
    link = await Following(trees, event.shard).at(event.position)
    return link is not None and link.leaf(event.position) == leaf_of(event)


def split(found: Runs, parts: Sequence[tuple[int, int]]) -> tuple[int, Runs]:
    """Return how many positions of the runs are within the parts, and the runs of those that are in none."""
    inside, outside = 0, Runs()
    for first, last in found:
        position = first
        for start, end in sorted(parts):
            low, high = max(start, position), min(end, last)
            if low > high:
                continue
            if low > position:
                outside.append((position, low - 1))
            inside += high - low + 1
            position = high + 1
        if position <= last:
            outside.append((position, last))
    return inside, outside
