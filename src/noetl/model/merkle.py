"""The Merkle tree of RFC 9162 (and 6962) with SHA-256: hashes, a tree that only grows, and proofs of inclusion. Pure.

A leaf is SHA-256(0x00 ‖ data), a node SHA-256(0x01 ‖ left ‖ right), the root of nothing SHA-256 of no bytes. Any range of
leaves that a proof needs is made of complete subtrees; `(level, number)` names the one over the leaves from
`number << level` on, two to the power of `level` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

NO_ROOT: Final = sha256().digest()
MOST_HASHES: Final = 64
"""A path in a tree with 64-bit positions has no more."""

Subtree = tuple[int, int]


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash over two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def root_of(subtrees: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees that stand beside each other, the larger first."""
    if not subtrees:
        return NO_ROOT
    node = subtrees[-1]
    for left in reversed(subtrees[:-1]):
        node = node_hash(left, node)
    return node


class MerkleFrontier:
    """A tree of which only the roots of complete subtrees are kept, the larger first.

    Their levels are the one bits of the number of leaves, so a million leaves need twenty of them.
    """

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)

    def add(self, leaf: bytes) -> list[tuple[Subtree, bytes]]:
        """Add the hash of a leaf at the end, and return the subtrees above it that are complete now."""
        made: list[tuple[Subtree, bytes]] = []
        node, number, level = leaf, self.size, 0
        while number & 1:
            node, number, level = node_hash(self.peaks.pop(), node), number >> 1, level + 1
            made.append(((level, number), node))
        self.peaks.append(node)
        self.size += 1
        return made

    def root(self) -> bytes:
        """Return the root over all leaves."""
        return root_of(self.peaks)


def subtrees(start: int, end: int) -> list[Subtree]:
    """Return the complete subtrees that the leaves of a range are made of, the larger first.

    The range begins where a subtree of its size may, as all ranges of a tree do.
    """
    found = []
    while start < end:
        level = (end - start).bit_length() - 1
        found.append((level, start >> level))
        start += 1 << level
    return found


def audit_path(index: int, size: int) -> list[list[Subtree]]:
    """Return what the hashes of an inclusion proof are made of, from the leaf up: the subtrees of each of them."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has none at {index}")
    path: list[list[Subtree]] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + (1 << ((end - start - 1).bit_length() - 1))
        if index < middle:
            path.append(subtrees(middle, end))
            end = middle
        else:
            path.append(subtrees(start, middle))
            start = middle
    return path[::-1]


def root_from_path(index: int, size: int, leaf: bytes, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a leaf and its path lead to (RFC 9162, 2.1.3.2), or None if the path cannot be one."""
    if not 0 <= index < size or len(path) > MOST_HASHES:
        return None
    number, last, node = index, size - 1, leaf
    for other in path:
        if last == 0 or len(other) != sha256().digest_size:
            return None
        if number & 1 or number == last:
            node = node_hash(other, node)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            node = node_hash(node, other)
        number, last = number >> 1, last >> 1
    return node if last == 0 else None
