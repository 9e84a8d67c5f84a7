"""The rows somebody asked for: folded rows go in, in any order, the first of each projection by id come out."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator
from operator import itemgetter
from typing import Any

from noetl.kernel.projections.folds.checksum import row_checksum
from noetl.kernel.projections.folds.fold import FoldedRow


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

    def folded(self) -> Iterator[FoldedRow]:
        """Yield the rows that were taken."""
        return (folded for rows in self._rows.values() for _, folded in rows)

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
