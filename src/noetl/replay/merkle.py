"""A Merkle tree over digests that only grows: digests go in one by one, a root comes out at any time.

The tree is the one of RFC 6962 with SHA-256: a leaf is SHA-256(0x00 ‖ digest), a node SHA-256(0x01 ‖ left ‖ right), the
root of nothing is SHA-256 of no bytes. Only the roots of the complete subtrees are kept, the larger first: their heights
are the one bits of the number of leaves, so a million digests need twenty of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any


class MerkleRange:
    """The digests added so far."""

    def __init__(self, leaves: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.leaves = leaves
        self._peaks = list(peaks)

    def add(self, digest: str) -> None:
        """Add a digest, given in hex, at the end."""
        node = sha256(b"\x00" + bytes.fromhex(digest)).digest()
        count = self.leaves
        while count & 1:
            node = sha256(b"\x01" + self._peaks.pop() + node).digest()
            count >>= 1
        self._peaks.append(node)
        self.leaves += 1

    def root(self) -> str:
        """Return the root over all digests, in hex."""
        if not self._peaks:
            return sha256().hexdigest()
        node = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            node = sha256(b"\x01" + peak + node).digest()
        return node.hex()

    def export(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"leaves": self.leaves, "peaks": [peak.hex() for peak in self._peaks]}

    @classmethod
    def restore(cls, exported: dict[str, Any]) -> MerkleRange:
        """Return the range that `export` wrote."""
        return cls(exported["leaves"], [bytes.fromhex(peak) for peak in exported["peaks"]])
