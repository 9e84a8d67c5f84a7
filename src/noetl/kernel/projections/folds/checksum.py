"""Checksums and sums: rows go in, in any order; a number per projection, a digest per state and a sum per bucket
come out.

Sums of parts add up to the sum of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import orjson
from blake3 import blake3

from noetl.kernel.projections.folds.fold import FoldedRow, Row
from noetl.model.canonical import canonical_json, digest_of

_LOW_256_BITS: Final = (1 << 256) - 1


def row_checksum(folded: FoldedRow) -> str:
    """Return the BLAKE3, in hex, of a row, its name and the version of the fold that made it."""
    return canonical_row(folded)[1]


def canonical_row(folded: FoldedRow) -> tuple[bytes, str]:
    """Return a row's canonical JSON and its checksum: what a store keeps."""
    row = canonical_json(folded.row)
    return row, f"{text_number(folded.key, folded.version, row):064x}"


def row_number(key: tuple[str, str, str, str], version: int, row: Row) -> int:
    """Return a row's checksum as the number that tallies add up."""
    return text_number(key, version, canonical_json(row))


def text_number(key: tuple[str, str, str, str], version: int, row: bytes) -> int:
    """Return the checksum, as a number, of a row given as its canonical JSON.

    Hashed is the canonical JSON of an object with the fields `id`, `organization_id`, `projection`, `row`, `tenant_id` and
    `version`. It is put together here, because all but two of them repeat from row to row.
    """
    tenant_id, organization_id, projection, row_id = key
    middle, end = _around(tenant_id, organization_id, projection, version)
    document = b"".join((b'{"id":', orjson.dumps(row_id), middle, row, end))
    return int.from_bytes(blake3(document).digest(), "big")


@lru_cache(maxsize=1024)
def _around(tenant_id: str, organization_id: str, projection: str, version: int) -> tuple[bytes, bytes]:
    """Return what stands before and after the row."""
    middle = canonical_json({"organization_id": organization_id, "projection": projection})
    end = canonical_json({"tenant_id": tenant_id, "version": version})
    return b',%b,"row":' % middle[1:-1], b",%b" % end[1:]


@dataclass(slots=True)
class Tally:
    """How many rows there are and the sum of their checksums modulo 2^256: two tallies of the same rows are equal."""

    rows: int = 0
    total: int = 0

    def add(self, number: int) -> None:
        """Count a row in."""
        self.rows += 1
        self.total = (self.total + number) & _LOW_256_BITS

    def remove(self, number: int) -> None:
        """Count a row out that was counted in before."""
        self.rows -= 1
        self.total = (self.total - number) & _LOW_256_BITS

    def merge(self, other: Tally) -> None:
        """Count in all rows of another tally, which must be other rows."""
        self.rows += other.rows
        self.total = (self.total + other.total) & _LOW_256_BITS

    def hex(self) -> str:
        """Return the sum as 64 hex digits."""
        return f"{self.total:064x}"


def state_checksum(tallies: Mapping[str, Tally]) -> str:
    """Return one digest for all projections."""
    return digest_of({name: {"rows": tally.rows, "sum": tally.hex()} for name, tally in tallies.items()})


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
