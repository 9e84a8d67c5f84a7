"""Events in pages: read one page ahead of the fold, their fields resolved, folded, and covered by a Merkle root."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

from noetl.kernel.payloads.fields import FieldsReader
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.merkle import MerkleFrontier, leaf_hash
from noetl.model.stream import Scope

T = TypeVar("T")


class EventPages(Protocol):
    """A ledger that is read in pages, each in order, none of them empty."""

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        ...

    def execution_pages(
        self, scope: Scope, execution_id: int, from_position: int = 1, *, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of an execution by position, both bounds included."""
        ...

    def shard_pages(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard by position, both bounds included, of one organization or of all."""
        ...


async def ahead(pages: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Give what the iterator gives, fetching the next while the present one is worked on."""
    source = aiter(pages)
    following = asyncio.ensure_future(_following(source))
    try:
        while (page := await following) is not None:
            following = asyncio.ensure_future(_following(source))
            yield page
    finally:
        # A reader that stops early must not leave a query running on a connection that goes back to its pool.
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        if isinstance(source, AsyncGenerator):
            await source.aclose()


async def _following(source: AsyncIterator[T]) -> T | None:
    return await anext(source, None)


def reading(pages: AsyncIterator[T]) -> aclosing[AsyncGenerator[T, None]]:
    """Open an iterator of pages for a block that reads it one page ahead and closes it, read to its end or not."""
    return aclosing(ahead(pages))


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


EVICTED: Final = frozenset({"frame"})
"""Whose ended rows leave memory when one execution is folded: there may be millions of them, and few of all others."""

OnPage = Callable[[list[Event]], None]


class Watches(Protocol):
    """Who holds what is folded against what is stored."""

    async def expect(self, group: Sequence[Event]) -> None:
        """Take events before their fields are read."""
        ...

    def check(self, events: Iterable[Event]) -> None:
        """Take the same with their fields, before they are folded."""
        ...


async def fold_pages(
    state: FoldState,
    pages: AsyncIterator[list[Event]],
    fields: FieldsReader,
    on_page: OnPage | None = None,
    witness: Watches | None = None,
) -> int:
    """Fold every page, reading one ahead; return how many events were new to the state.

    Events of streams whose fields cannot be read are not folded from there on; `fields` knows which these are.
    """
    folded = 0
    async with reading(pages) as pages_ahead:
        async for page in pages_ahead:
            if on_page is not None:
                on_page(page)
            for group in fields.divided(page):
                if witness is not None:
                    await witness.expect(group)
                read = await fields.read(group)
                if witness is not None:
                    witness.check(read)
                folded += state.apply_many(read)
    return folded


def counting(payloads: MerkleRange) -> OnPage:
    """Return what adds the payload digests of pages to a Merkle tree, in position order."""

    def add(page: list[Event]) -> None:
        for event in page:
            if event.payload_ref is not None:
                payloads.add(event.payload_ref.sha256)
            if event.fields_ref is not None:
                payloads.add(event.fields_ref.sha256)

    return add
