"""Pages of events go in, a folded state and what was counted on the way come out."""

from __future__ import annotations

from bisect import insort
from collections.abc import AsyncIterator, Callable, Collection
from operator import itemgetter
from typing import Any, Final

from noetl.model.event import Event
from noetl.project.folds.checksum import row_checksum
from noetl.project.folds.fold import FoldedRow
from noetl.project.folds.state import FoldState
from noetl.replay.merkle import MerkleRange
from noetl.replay.pages import reading

EVICTED: Final = frozenset({"frame"})
"""Whose ended rows leave memory when one execution is folded: there may be millions of them, and few of all others."""

OnPage = Callable[[list[Event]], None]


async def fold_pages(state: FoldState, pages: AsyncIterator[list[Event]], on_page: OnPage | None = None) -> int:
    """Fold every page, reading one ahead; return how many events were new to the state."""
    folded = 0
    async with reading(pages) as pages_ahead:
        async for page in pages_ahead:
            if on_page is not None:
                on_page(page)
            folded += state.apply_many(page)
    return folded


def counting(payloads: MerkleRange) -> OnPage:
    """Return what adds the payload digests of pages to a Merkle tree, in position order."""

    def add(page: list[Event]) -> None:
        for event in page:
            if event.payload_ref is not None:
                payloads.add(event.payload_ref.sha256)
            if event.fields_ref is not None:
                payloads.add(event.fields_ref.sha256)

    return add


class Rows:
    """The rows that were asked for, by id, no more of each projection than the limit."""

    def __init__(self, projections: Collection[str], limit: int | None = None) -> None:
        self._rows: dict[str, list[tuple[tuple[str, ...], FoldedRow]]] = {name: [] for name in projections}
        self._limit = limit
        self.left_off = dict.fromkeys(projections, 0)

    def add(self, folded: FoldedRow) -> None:
        """Take a row, unless it is of no use or falls behind the limit."""
        rows = self._rows.get(folded.key.projection)
        if rows is None:
            return
        if self._limit is None:
            rows.append((folded.key, folded))
            return
        if len(rows) < self._limit:
            insort(rows, (folded.key, folded), key=itemgetter(0))
            return
        self.left_off[folded.key.projection] += 1
        if rows and folded.key < rows[-1][0]:
            rows.pop()
            insort(rows, (folded.key, folded), key=itemgetter(0))

    def by_projection(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows as plain JSON values, ordered by id."""
        return {
            name: [plain_row(folded) for _, folded in sorted(rows, key=itemgetter(0))]
            for name, rows in self._rows.items()
        }


def plain_row(folded: FoldedRow) -> dict[str, Any]:
    """Write a row with its name, lineage and checksum as plain JSON values."""
    return {
        "id": folded.key.row_id,
        "tenant_id": folded.key.tenant_id,
        "organization_id": folded.key.organization_id,
        "version": folded.version,
        "shard": folded.shard,
        "first_position": folded.first_position,
        "last_position": folded.last_position,
        "checksum": row_checksum(folded),
        "row": folded.row,
    }
