"""Checksums: rows go in, one number per projection and one digest per state come out, whatever the order of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import orjson
from blake3 import blake3

from noetl.model.canonical import canonical_json, digest_of
from noetl.project.folds.fold import FoldedRow, Row

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
