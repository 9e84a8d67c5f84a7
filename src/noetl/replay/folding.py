"""Pages of events go in, a folded state and what was counted on the way come out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from noetl.model.event import Event
from noetl.project.folds.state import FoldState
from noetl.replay.merkle import MerkleRange
from noetl.replay.pages import reading

EVICTED: Final = frozenset({"frame"})
"""Whose ended rows leave memory when one execution is folded: there may be millions of them, and few of all others."""

OnPage = Callable[[list[Event]], None]


async def fold_pages(state: FoldState, pages: AsyncIterator[list[Event]], on_page: OnPage | None = None) -> int:
    """Fold every page, reading one ahead; return how many events were new to the state."""
    folded = 0
    async with reading(pages) as pages_ahead:
        async for page in pages_ahead:
            if on_page is not None:
                on_page(page)
            folded += state.apply_many(page)
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
