"""The notary: makes the tree of each shard of its links and signs heads, outside every append.

It never signs what does not follow from the head that it signed before: a ledger that was rewritten is told, not notarized.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from noetl.errors import Corrupt
from noetl.ledger.chain.heads import Head, Signer, tree_leaf
from noetl.ledger.chain.trees import CHUNK_LEVEL, Trees
from noetl.model.event import time_text
from noetl.model.merkle import MerkleFrontier, Subtree
from noetl.model.shard import SHARD_COUNT

Publish = Callable[[Head], Awaitable[None]]
_KEPT_TOGETHER: Final = 1_000


class Notary:
    """Signs the heads of one ledger. `published` are the newest heads that stand elsewhere."""

    def __init__(
        self,
        trees: Trees,
        signer: Signer,
        publish: Publish,
        published: Mapping[int, Head],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._trees = trees
        self._signer = signer
        self._publish = publish
        self._published = dict(published)
        self._now = now

    async def round(self) -> list[Head]:
        """Sign and publish a head of every shard that grew."""
        ledger = await self._trees.ledger()
        found = [await self._shard(ledger, shard) for shard in range(SHARD_COUNT)]
        return [head for head in found if head is not None]

    async def _shard(self, ledger: str, shard: int) -> Head | None:
        recorded, known = await self._trees.newest(shard), self._published.get(shard)
        before = max((head for head in (recorded, known) if head is not None), key=lambda head: head.size, default=None)
        tree, link = await self._grown(shard, before)
        if not tree.size:
            return None
        if before is not None and tree.size == before.size:
            # Signed by another notary, or by this one before it could tell anybody.
            if known != before:
                await self._tell(before)
            return None
        first = (await self._trees.links.chained_from())[shard]
        head = self._signer.sign(
            Head(
                ledger=ledger,
                shard=shard,
                first_position=first,
                size=tree.size,
                root=tree.root().hex(),
                link=link.hex(),
                signed_at=time_text(self._now()),
                key="",
            )
        )
        await self._trees.sign(head)
        await self._tell(head)
        return head

    async def _tell(self, head: Head) -> None:
        await self._publish(head)
        self._published[head.shard] = head

    async def _grown(self, shard: int, before: Head | None) -> tuple[MerkleFrontier, bytes]:
        """Return the tree over all links, and the last of them; refuse one that left what was signed."""
        tree, first = await self._trees.kept(shard)
        made: list[tuple[Subtree, bytes]] = []
        link = b""
        proven = before is None or before.size < tree.size
        async for page in self._trees.links.links(shard, first + tree.size):
            for one in page:
                if one.first_position > first + tree.size:
                    raise Corrupt(
                        f"shard {shard} has no link for position {first + tree.size}; no head of it is signed"
                    )
                for position in range(max(one.first_position, first + tree.size), one.last_position + 1):
                    made += [
                        node for node in tree.add(tree_leaf(position, one.leaf(position))) if node[0][0] >= CHUNK_LEVEL
                    ]
                link = one.link
                if before is not None and tree.size == before.size:
                    _check(before, tree.root(), link)
                    proven = True
            if len(made) >= _KEPT_TOGETHER:
                await self._trees.keep(shard, made)
                made = []
        if before is not None and tree.size == before.size and not proven:
            _check(before, tree.root(), None)
        elif not proven and before is not None:
            raise _left(before, f"it has {tree.size} events with leaves now")
        if made:
            await self._trees.keep(shard, made)
        return tree, link


def _check(before: Head, root: bytes, link: bytes | None) -> None:
    if root.hex() != before.root:
        raise _left(before, f"the root over them is {root.hex()} now")
    if link is not None and link.hex() != before.link:
        raise _left(before, f"the link that ends them is {link.hex()} now")


def _left(before: Head, how: str) -> Corrupt:
    return Corrupt(
        f"shard {before.shard} was changed after its head over {before.size} events was signed at {before.signed_at}: {how}",
        hint="`noetl verify --all` names what differs; no further head of this shard is signed",
    )
