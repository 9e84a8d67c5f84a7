"""Whatever the ledger holds and however the projector is cut up, its rows are those of one pure fold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.histories import HOME, INVOICE_POSTED, NEIGHBOUR, histories

from noetl.errors import AlreadyRecorded
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.rebuild import rebuild
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Draft, Event
from noetl.model.mark import Mark
from noetl.testing.samples.projected_ledger import pure_rows, stored_rows


@business_object("invoice", events=[INVOICE_POSTED], ended=lambda row: row["total"] > 8)
def invoice(row: Row | None, event: Event) -> Row:
    row = row or {"total": 0, "share": 0.5}
    row["total"] += event.meta["amount"]
    row["share"] *= 2
    return row


FOLDS = (*built_in_folds(), invoice)


async def recorded(ledger: MemoryLedger, events: list[Event]) -> None:
    """Append what was drawn; facts that may stand once only are refused the second time, as in life."""
    for event in events:
        draft = Draft(**{name: getattr(event, name) for name in Draft.__struct_fields__})
        try:
            await ledger.append(draft.stream, [draft])
        except AlreadyRecorded:
            continue


def projector(ledger: MemoryLedger, store: MemoryProjectionStore, batch_events: int, **options: Any) -> Projector:
    return Projector(ledger, store, FoldRegistry(FOLDS), Upcasters(), batch_events=batch_events, **options)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@given(histories(), st.integers(1, 9), st.lists(st.integers(0, 40), max_size=4))
@settings(deadline=None)
def test_rows_equal_a_pure_fold_wherever_projectors_stop_and_start(
    events: list[Event], batch_events: int, stops: list[int]
) -> None:
    async def test() -> None:
        ledger, store = MemoryLedger(), MemoryProjectionStore()
        await recorded(ledger, events)
        head = await ledger.head()
        for stop in sorted(stops):
            await projector(ledger, store, batch_events).run_until(Mark([min(stop, p) for p in head.positions]))
        await projector(ledger, store, batch_events).run_until(head)
        rows = await stored_rows(store, HOME, NEIGHBOUR)
        assert rows == await pure_rows(ledger, FOLDS)
        report = await rebuild(ledger, store, FoldRegistry(FOLDS), Upcasters())
        assert report.changed == 0
        assert await stored_rows(store, HOME, NEIGHBOUR) == rows

    in_a_loop(test)


@given(histories(), st.lists(st.integers(1, 5), min_size=2, max_size=4))
@settings(max_examples=50, deadline=None)
def test_projectors_that_race_fold_every_event_once(events: list[Event], sizes: list[int]) -> None:
    async def test() -> None:
        ledger, store = MemoryLedger(), MemoryProjectionStore()
        seen: list[tuple[int, int]] = []

        async def note(shard: int, batch: list[Event]) -> None:
            seen.extend((shard, event.position) for event in batch)

        await recorded(ledger, events)
        head = await ledger.head()
        await asyncio.gather(*(projector(ledger, store, size, on_batch=note).run_until(head) for size in sizes))
        assert sorted(seen) == [(s, p) for s, last in enumerate(head.positions) for p in range(1, last + 1)]
        assert await stored_rows(store, HOME, NEIGHBOUR) == await pure_rows(ledger, FOLDS)

    in_a_loop(test)
