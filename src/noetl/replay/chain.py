"""Holds events against the chain of their shard, and the chain against heads that were signed: what was changed is named.

Leaves are computed again from the events, links from leaves, roots from leaves. A change of an event differs from its
leaf, a change of a leaf from its link, a change of everything from a head that is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noetl.errors import HistoryNotKept
from noetl.ledger.chain.heads import Head, is_signed_by, tree_leaf
from noetl.ledger.chain.links import NO_LINK, Link
from noetl.ledger.chain.trees import Trees
from noetl.ledger.normalizer import leaf_of
from noetl.ledger.port import LedgerReader
from noetl.model.event import Event, time_text
from noetl.model.merkle import MerkleFrontier
from noetl.model.stream import Scope, execution_stream
from noetl.replay.report import Difference

SHOWN: Final = 10
"""Differences told of each shard: what follows a change differs, too."""


class ChainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was held against the chain."""

    events: int
    """Events whose leaves were computed again."""
    before: int
    """Events that were recorded before links were kept, which nothing proves."""
    links: int
    heads: int
    """Signed heads whose roots were computed again."""
    differences: list[Difference]


class ChainCheck:
    """Checks one ledger; `heads` are those that were kept, `key` the one that must have signed them."""

    def __init__(
        self, history: LedgerReader, trees: Trees, heads: Sequence[Head] = (), key: Ed25519PublicKey | None = None
    ) -> None:
        self._history = history
        self._trees = trees
        self._heads = heads
        self._key = key
        self._differences: list[Difference] = []
        self._events = self._before = self._links = self._told = 0

    async def shards(self, scope: Scope | None = None, *, leaves: bool = True) -> ChainReport:
        """Check every link and head, and the events of an organization; without one, those of all, none missing.

        Without `leaves` the events are not looked at.
        """
        ends = (await self._history.head()).positions
        for shard, first in enumerate(await self._trees.links.chained_from()):
            await self._chain(shard, first, ends[shard])
            if leaves:
                await self._shard(shard, first, scope, ends[shard])
        return await self._report()

    async def execution(self, scope: Scope, execution_id: int) -> ChainReport:
        """Check the events of one execution against the links they are under."""
        shard = execution_stream(scope, execution_id).shard
        first = (await self._trees.links.chained_from())[shard]
        await self._leaves(shard, first, self._history.read_execution(scope, execution_id))
        return ChainReport(events=self._events, before=self._before, links=0, heads=0, differences=self._differences)

    async def _report(self) -> ChainReport:
        ledger = await self._trees.ledger()
        for head in self._heads:
            if head.ledger != ledger:
                self._differs(f"over {head.size} events of shard {head.shard}", "ledger", head.ledger, ledger, "head")
        return ChainReport(
            events=self._events,
            before=self._before,
            links=self._links,
            heads=len(self._heads),
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

    async def _shard(self, shard: int, first: int, scope: Scope | None, end: int) -> None:
        """Compute the leaves of a shard's events again; of all tenants, none may be missing."""
        for event_id, position in await self._trees.links.astray(shard, scope):
            name = f"{event_id} at position {position} of shard {shard}"
            self._differs(name, "digest columns", "those of its references", "others", "event")
        try:
            seen = await self._leaves(shard, first, self._history.read_shard(shard, scope=scope, to_position=end))
        except HistoryNotKept:
            # What is gone for good leaves its links; there is nothing left to hold against them.
            return
        if scope is None:
            self._missing(shard, seen, end)

    async def _leaves(self, shard: int, first: int, events: AsyncIterator[Event]) -> list[tuple[int, int]]:
        """Hold events against their leaves, and return the runs of positions that were seen."""
        self._told, runs = 0, list[tuple[int, int]]()
        links = _Following(self._trees, shard)
        async for event in events:
            runs = _with(runs, event.position)
            if event.position < first:
                self._before += 1
                continue
            self._events += 1
            link = await links.at(event.position)
            if link is None:
                self._event_differs(event, "link", "one that covers it", None)
                continue
            if (said := leaf_of(event)) != (leaf := link.leaf(event.position)):
                self._event_differs(event, "leaf (SHA-256 of its columns)", leaf.hex(), said.hex())
            if (at := link.ingest_time(event.position)) != event.ingest_time:
                self._event_differs(event, "ingest_time", time_text(at), time_text(event.ingest_time))
            version = links.version(event.position)
            if version != event.stream_version:
                self._event_differs(event, "stream_version", version, event.stream_version)
        return runs

    def _missing(self, shard: int, seen: list[tuple[int, int]], end: int) -> None:
        position = 1
        for first, last in [*seen, (end + 1, end + 1)]:
            if first > position:
                gone = str(position) if first == position + 1 else f"{position} to {first - 1}"
                self._differs(f"{gone} of shard {shard}", "event", "one for each leaf", "none", "position")
            position = last + 1

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


def _with(runs: list[tuple[int, int]], position: int) -> list[tuple[int, int]]:
    """Add a position to runs of them; positions come in order."""
    if runs and position <= runs[-1][1] + 1:
        runs[-1] = (runs[-1][0], max(runs[-1][1], position))
    else:
        runs.append((position, position))
    return runs


class _Following:
    """The links of a shard, found for positions that come in order."""

    def __init__(self, trees: Trees, shard: int) -> None:
        self._pages: AsyncIterator[list[Link]] | None = None
        self._trees = trees
        self._shard = shard
        self._page: list[Link] = []
        self._link: Link | None = None
        self._versions: list[int] = []

    async def at(self, position: int) -> Link | None:
        """Return the link that holds a position."""
        while self._link is None or self._link.last_position < position:
            if self._pages is None:
                self._pages = self._trees.links.links(self._shard, position)
            while not self._page:
                found = await anext(self._pages, None)
                if found is None:
                    return None
                self._page = found
            self._link = self._page.pop(0)
            self._versions = list(self._link.stream_versions())
        return self._link if self._link.first_position <= position else None

    def version(self, position: int) -> int | None:
        """Return the stream version that the link says of a position it holds."""
        if self._link is None:
            return None
        place = position - self._link.first_position
        return self._versions[place] if 0 <= place < len(self._versions) else None
