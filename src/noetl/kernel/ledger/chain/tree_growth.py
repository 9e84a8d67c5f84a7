"""Grows the tree of a shard over its links, and refuses a shard that left what was signed of it before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl.errors import Corrupt
from noetl.kernel.ledger.chain.heads import Head, tree_leaf
from noetl.kernel.ledger.chain.links import Link
from noetl.kernel.ledger.chain.stored import CHUNK_LEVEL, Trees
from noetl.model.merkle import MerkleFrontier, Subtree

_KEPT_TOGETHER: Final = 1_000


async def grown(trees: Trees, shard: int, first: int, before: Sequence[Head]) -> tuple[MerkleFrontier, bytes]:
    """Return the tree over all links, and the last of them, once they follow from every head that was signed before."""
    kept = await trees.kept(shard)
    # Kept nodes are as good as the head that covers them: what passes one of the heads is made of leaves once more.
    tree = kept if before and kept.size <= min(head.size for head in before) else MerkleFrontier()
    growth = _Growth(trees, shard, first, tree, before)
    async for page in trees.links.links(shard, first + max(0, tree.size - 1)):
        for link in page:
            await growth.add(link)
        await growth.keep(at_least=_KEPT_TOGETHER)
    for head in growth.due:
        raise left(head, f"it has {tree.size} events with leaves now")
    if tree.size < kept.size:
        raise Corrupt(f"the tree of shard {shard} has nodes over {kept.size} leaves, and there are {tree.size}")
    await growth.keep()
    return tree, growth.link


class _Growth:
    """A tree that grows link by link, held against heads where they end."""

    def __init__(self, trees: Trees, shard: int, first: int, tree: MerkleFrontier, before: Sequence[Head]) -> None:
        self._trees, self._shard, self._first, self._tree = trees, shard, first, tree
        self._made: list[tuple[Subtree, bytes]] = []
        self._previous: bytes | None = None
        self.link = b""
        self.due = sorted(before, key=lambda head: head.size)

    async def add(self, link: Link) -> None:
        """Add the leaves of the next link."""
        following = self._first + self._tree.size
        if link.first_position > following or (self._previous is not None and link.first_position != following):
            raise Corrupt(f"shard {self._shard} has no link for position {following}; no head of it is signed")
        if self._previous is None:
            self._previous = await self._trees.links.before(self._shard, link.first_position)
        if not link.is_whole or link.link != link.after(self._previous):
            raise Corrupt(
                f"the link of positions {link.first_position} to {link.last_position} of shard {self._shard} does not follow"
                " from the one before; no head of it is signed"
            )
        for position in range(max(link.first_position, following), link.last_position + 1):
            made = self._tree.add(tree_leaf(position, link.leaf(position)))
            self._made += [node for node in made if node[0][0] >= CHUNK_LEVEL]
        self.link = self._previous = link.link
        while self.due and self.due[0].size <= self._tree.size:
            _check(self.due.pop(0), self._tree, link)

    async def keep(self, at_least: int = 1) -> None:
        """Keep the nodes that were made, once they follow from the heads."""
        if not self.due and len(self._made) >= at_least:
            await self._trees.keep(self._shard, self._made)
            self._made = []


def _check(before: Head, tree: MerkleFrontier, link: Link) -> None:
    if before.size != tree.size:
        raise left(before, f"no link ends at position {before.last_position} now")
    if tree.root().hex() != before.root:
        raise left(before, f"the root over them is {tree.root().hex()} now")
    if link.link.hex() != before.link:
        raise left(before, f"the link that ends them is {link.link.hex()} now")


def left(before: Head, how: str) -> Corrupt:
    """Say that a shard is no longer what was signed."""
    return Corrupt(
        f"shard {before.shard} was changed after its head over {before.size} events was signed at {before.signed_at}: {how}",
        hint="`noetl verify --all` names what differs; no further head of this shard is signed. After a restore of the database,"
        " docs/proofs.md says how to go on",
    )
