"""A Merkle tree over digests that only grows: digests go in one by one, a root comes out at any time.

The tree is that of `noetl.model.merkle`, its leaves the digests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from noetl.model.merkle import MerkleFrontier, leaf_hash


class MerkleRange:
    """The digests added so far."""

    def __init__(self, leaves: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self._tree = MerkleFrontier(leaves, peaks)

    @property
    def leaves(self) -> int:
        """How many digests there are."""
        return self._tree.size

    def add(self, digest: str) -> None:
        """Add a digest, given in hex, at the end."""
        self._tree.add(leaf_hash(bytes.fromhex(digest)))

    def root(self) -> str:
        """Return the root over all digests, in hex."""
        return self._tree.root().hex()

    def export(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"leaves": self._tree.size, "peaks": [peak.hex() for peak in self._tree.peaks]}

    @classmethod
    def restore(cls, exported: dict[str, Any]) -> MerkleRange:
        """Return the range that `export` wrote."""
        return cls(exported["leaves"], [bytes.fromhex(peak) for peak in exported["peaks"]])
