"""Pages of events go in, their fields are read, and a folded state comes out with what was counted on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, Protocol

from noetl.model.event import Event
from noetl.payloads.fields import FieldsReader
from noetl.project.folds.state import FoldState
from noetl.replay.merkle import MerkleRange
from noetl.replay.pages import reading

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
