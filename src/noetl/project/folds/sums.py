"""Sums over rows: rows go in, in any order, a tally per projection and a sum per bucket of rows come out.

Sums of parts add up to the sum of the whole, so that parts may be summed apart from each other.
"""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

from blake3 import blake3

from noetl.project.folds.checksum import Tally, row_number
from noetl.project.folds.fold import FoldedRow

BUCKETS: Final = 1024


class Sums:
    """One side of a comparison: a tally per projection, and a sum per bucket over rows with their lineage."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.buckets: dict[tuple[str, int], int] = {}

    def add(self, folded: FoldedRow) -> int:
        """Count a row in; return its checksum as a number."""
        number = row_number(folded.key, folded.version, folded.row)
        lineage = (folded.execution_id, folded.shard, folded.first_position, folded.last_position)
        self.count(folded.key.projection, folded.key.row_id, number, lineage)
        return number

    def count(self, projection: str, row_id: str, number: int, lineage: tuple[int, int, int, int]) -> None:
        """Count a row in whose checksum is known; its lineage is execution, shard, first and last position."""
        tally = self.tallies.get(projection)
        if tally is None:
            tally = self.tallies[projection] = Tally()
        tally.add(number)
        told = "{} {} {} {}".format(*lineage)
        proof = int.from_bytes(blake3(number.to_bytes(32, "big") + told.encode()).digest(16), "big")
        place = (projection, bucket(row_id))
        self.buckets[place] = self.buckets.get(place, 0) + proof

    def merge(self, other: Sums) -> None:
        """Count in all rows of another side, which must be other rows."""
        for projection, tally in other.tallies.items():
            self.tallies.setdefault(projection, Tally()).merge(tally)
        for place, proof in other.buckets.items():
            self.buckets[place] = self.buckets.get(place, 0) + proof

    def export(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "tallies": [[name, tally.rows, tally.hex()] for name, tally in self.tallies.items()],
            "buckets": [[name, number, f"{proof:x}"] for (name, number), proof in self.buckets.items()],
        }

    @classmethod
    def restore(cls, exported: dict[str, Any]) -> Sums:
        """Return the sums that `export` wrote."""
        sums = cls()
        sums.tallies = {name: Tally(rows, int(total, 16)) for name, rows, total in exported["tallies"]}
        sums.buckets = {(name, number): int(proof, 16) for name, number, proof in exported["buckets"]}
        return sums


def bucket(row_id: str) -> int:
    """Return the bucket of a row."""
    return crc32(row_id.encode()) % BUCKETS
