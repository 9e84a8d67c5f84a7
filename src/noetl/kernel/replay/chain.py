"""Holds events against the chain of their shard, and the chain against heads that were signed: what was changed is named.

Leaves are computed again from the events, links from leaves, roots from leaves. A change of an event differs from its
leaf, a change of a leaf from its link, a change of everything from a head that is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noetl.kernel.ledger.chain.heads import Head, is_signed_by, tree_leaf
from noetl.kernel.ledger.chain.links import NO_LINK, Link
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.port import LedgerReader
from noetl.kernel.replay.leaves import LeafCheck, Runs, gaps
from noetl.kernel.replay.removed_positions import away, split
from noetl.kernel.replay.report import Difference
from noetl.model.event import Event
from noetl.model.merkle import MerkleFrontier
from noetl.model.stream import Scope, execution_stream

SHOWN: Final = 10
"""Differences told of each shard: what follows a change differs, too."""


class KeptHistory(LedgerReader, Protocol):
    """A ledger that can be read with gaps where archives were removed for good."""

    def read_kept_shard(self, shard: int, *, scope: Scope | None = None, to_position: int) -> AsyncIterator[Event]:
        """Give the events of a shard by position that are still kept, up to a bound that is included."""
        ...


class ChainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was held against the chain."""

    events: int
    """Events whose leaves were computed again."""
    before: int
    """Events that were recorded before links were kept, which nothing proves."""
    away: int = 0
    """Positions that are in no place that was read, as the ledger's own events allow: nothing was held against their leaves."""
    links: int
    heads: int
    """Signed heads whose roots were computed again."""
    differences: list[Difference]


class ChainCheck:
    """Checks one ledger; `heads` are those that were kept, `key` the one that must have signed them."""

    def __init__(
        self, history: KeptHistory, trees: Trees, heads: Sequence[Head] = (), key: Ed25519PublicKey | None = None
    ) -> None:
        self._history = history
        self._trees = trees
        self._heads = list(heads)
        self._key = key
        self._differences: list[Difference] = []
        self._leaves = LeafCheck(trees, self._event_differs)
        self._links = self._told = 0

    async def shards(self, scope: Scope | None = None) -> ChainReport:
        """Check every link and head, and the events of an organization, or of all without one; no position may lack its event."""
        ends, firsts = (await self._history.head()).positions, await self._trees.links.chained_from()
        missing = list[Runs]()
        for shard, first in enumerate(firsts):
            await self._chain(shard, first, ends[shard])
            missing.append(gaps(await self._shard(shard, first, scope, ends[shard]), ends[shard]))
        allowed = await away(self._trees, scope)
        lost = 0
        for shard, first in enumerate(firsts):
            inside, outside = split(missing[shard], [one.within(shard, first) for one in allowed])
            lost += inside
            self._missing(shard, outside)
        self._told = 0
        if lost > (most := sum(one.events for one in allowed)):
            self._differs("of archives that are not read", "events", f"{most} at most", lost, "positions")
        return await self._report(self._heads, lost)

    async def execution(self, scope: Scope, execution_id: int) -> ChainReport:
        """Check the events of one execution, and all links and heads of its shard."""
        shard = execution_stream(scope, execution_id).shard
        end, first = (await self._history.head()).positions[shard], (await self._trees.links.chained_from())[shard]
        await self._chain(shard, first, end)
        self._told = 0
        await self._leaves.check(shard, first, self._history.read_execution(scope, execution_id))
        return await self._report([head for head in self._heads if head.shard == shard])

    async def _report(self, heads: Sequence[Head], lost: int = 0) -> ChainReport:
        ledger = await self._trees.ledger()
        for head in heads:
            if head.ledger != ledger:
                self._differs(f"over {head.size} events of shard {head.shard}", "ledger", head.ledger, ledger, "head")
        return ChainReport(
            events=self._leaves.events,
            before=self._leaves.before,
            away=lost,
            links=self._links,
            heads=len(heads),
            differences=self._differences,
        )

    async def _chain(self, shard: int, first: int, end: int) -> None:
        """Compute links and roots of a shard again."""
        self._told = 0
        due = sorted((head for head in self._heads if head.shard == shard), key=lambda head: head.size)
        tree, previous, position = MerkleFrontier(), NO_LINK, first
        async for page in self._trees.links.links(shard, first, end):
            for link in page:
                self._links += 1
                if link.first_position != position:
                    self._link_differs(link, "first position", position, link.first_position)
                elif not link.is_whole:
                    self._link_differs(link, "events", link.events, "leaves, times and versions of another number")
                elif link.link != (expected := link.after(previous)):
                    self._link_differs(link, "link", expected.hex(), link.link.hex())
                previous, position = link.link, link.last_position + 1
                for place in range(link.first_position, link.last_position + 1):
                    tree.add(tree_leaf(place, link.leaf(place)))
                while due and due[0].size <= tree.size:
                    self._head(due.pop(0), first, tree, link)
        if position <= end:
            self._differs(f"{position} to {end} of shard {shard}", "links", "one for each append", "none", "positions")
        for head in due:
            self._differs(_named(head), "size", head.size, tree.size, "head")

    def _head(self, head: Head, first: int, tree: MerkleFrontier, link: Link) -> None:
        if self._key is not None and not is_signed_by(head, self._key):
            self._differs(_named(head), "signature", "one of the given key", head.signature, "head")
        if head.first_position != first:
            self._differs(_named(head), "first position", head.first_position, first, "head")
        elif head.size != tree.size:
            self._differs(_named(head), "link", f"one that ends at position {head.last_position}", "none", "head")
        elif head.root != tree.root().hex():
            self._differs(_named(head), "root", head.root, tree.root().hex(), "head")
        elif head.link != link.link.hex():
            self._differs(_named(head), "link", head.link, link.link.hex(), "head")

    async def _shard(self, shard: int, first: int, scope: Scope | None, end: int) -> Runs:
        """Compute the leaves of a shard's events again, and return the positions that have an event."""
        for event_id, position in await self._trees.links.astray(shard, scope):
            name = f"{event_id} at position {position} of shard {shard}"
            self._differs(name, "digest columns", "those of its references", "others", "event")
        self._told = 0
        kept = self._history.read_kept_shard(shard, scope=scope, to_position=end)
        seen = await self._leaves.check(shard, first, kept)
        if scope is not None:
            seen += await self._trees.links.standing(shard, end)
        return seen

    def _missing(self, shard: int, runs: Runs) -> None:
        self._told = 0
        for first, last in runs:
            gone = str(first) if first == last else f"{first} to {last}"
            self._differs(f"{gone} of shard {shard}", "event", "one for each leaf", "none", "position")

    def _link_differs(self, link: Link, field: str, expected: object, found: object) -> None:
        where = f"of positions {link.first_position} to {link.last_position} of shard {link.shard}"
        self._differs(where, field, expected, found, "link")

    def _event_differs(self, event: Event, field: str, expected: object, found: object) -> None:
        name = f"{event.event_id} ({event.event_type}) at position {event.position} of shard {event.shard}"
        self._differs(name, field, expected, found, "event")

    def _differs(self, name: str, field: str, expected: object, found: object, where: str) -> None:
        self._told += 1
        if self._told <= SHOWN:
            self._differences.append(Difference(where=where, id=name, field=field, expected=expected, found=found))


def _named(head: Head) -> str:
    return f"over {head.size} events of shard {head.shard}, signed {head.signed_at}"
