"""What each shard of a bulk replay reads: heads, archives and the event lake go in, one part per shard comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from noetl.kernel.ledger.archive.rows import ArchiveRow, not_kept
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.bulk_replay.work import LakeFile, ShardPart


@dataclass(frozen=True)
class InLake:
    """What the event lake of an organization has: all events up to a mark, in these files."""

    mark: Mark
    files: tuple[LakeFile, ...]


class EventLakes(Protocol):
    """The event lakes of organizations."""

    async def pinned(self, scope: Scope) -> InLake:
        """Return what the lake of an organization has now."""
        ...


def planned(head: Mark, mark: Mark | None, archives: list[ArchiveRow], lake: InLake | None) -> tuple[ShardPart, ...]:
    """Return the parts, the longest first; without a mark each goes up to where its projections stand.

    Raises HistoryNotKept where events are neither in the ledger nor in an archive nor in the lake.
    """
    parts = []
    for shard, end in enumerate((mark or head).positions):
        if not end and mark is not None:
            continue
        lake_last = 0 if lake is None else min(lake.mark.positions[shard], end)
        reached = [row for row in archives if row.dropped and row.reaches(shard, lake_last + 1, end)]
        gone = [row for row in reached if row.removed]
        if gone:
            raise not_kept(gone)
        parts.append(
            ShardPart(
                shard=shard,
                last=None if mark is None else end,
                lake_last=lake_last,
                archived_last=max((row.bounds[shard][1] for row in reached), default=0),
            )
        )
    return tuple(sorted(parts, key=lambda part: -(mark or head).positions[part.shard]))
