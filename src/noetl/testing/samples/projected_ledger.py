"""For tests of projectors: a ledger with something of everything in it, and what its projections must be."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

from noetl.kernel.ledger.port import Ledger
from noetl.kernel.projections.folds.checksum import row_checksum
from noetl.kernel.projections.folds.fold import Fold, RowKey
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.stores.port import ProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Draft, Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.testing.samples.drafts import Drafts

HOME, NEIGHBOUR = Scope("default", "default"), Scope("acme", "default")
IDS = SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000)


class Reads(Protocol):
    """What can be read shard by shard."""

    def read_shard(self, shard: int, from_position: int = 1) -> AsyncIterator[Event]:
        """Give the events of a shard."""
        ...


def a_run(scope: Scope, frames: int = 3, *, ended: bool = True) -> list[Draft]:
    """Make the events of an execution with a framed loop, a payload per frame, and an invoice outside of it."""
    drafts = Drafts(scope, IDS.mint)
    run, loop, stage = IDS.mint(), IDS.mint(), IDS.mint()
    events = [
        drafts.execution(run, "execution.requested"),
        drafts.execution(run, catalog_id="c1"),
        drafts.loop(run, loop, "loop.started"),
        drafts.stage(run, stage, loop_id=loop),
    ]
    for _ in range(frames):
        frame = IDS.mint()
        events.append(drafts.frame(run, stage, frame, loop_id=loop, node_name="each"))
        result = drafts.payload(f"{frame:064x}", bytes=9)
        events.append(
            drafts.frame(run, stage, frame, "frame.committed", loop_id=loop, node_name="each", payload_ref=result)
        )
    events.append(
        drafts.business("business_object/invoice/i1", run, "business.invoice.posted", meta={"amount": frames})
    )
    if ended:
        events += [drafts.stage(run, stage, "stage.closed"), drafts.loop(run, loop, "loop.done")]
        events.append(drafts.execution(run, "playbook.completed"))
    return events


async def record(ledger: Ledger, drafts: Iterable[Draft]) -> None:
    """Append drafts one after another, each to its stream."""
    for draft in drafts:
        await ledger.append(draft.stream, [draft])


async def pure_rows(
    ledger: Reads, folds: Iterable[Fold], upcasters: Upcasters | None = None
) -> dict[RowKey, tuple[str, int, int, int]]:
    """Fold a whole ledger and return checksum, execution and positions of every row."""
    state = FoldState(folds := tuple(folds), upcasters=upcasters, keep_ended=True)
    for shard in range(SHARD_COUNT):
        async for event in ledger.read_shard(shard):
            state.apply(event)
    return {
        row.key: (row_checksum(row), row.execution_id, row.first_position, row.last_position)
        for fold in folds
        for row in state.rows(fold.projection)
    }


async def stored_rows(store: ProjectionStore, *scopes: Scope) -> dict[RowKey, tuple[str, int, int, int]]:
    """Return the same of every row that a store has for these organizations, recomputing no checksum."""
    found: dict[RowKey, Any] = {}
    for scope in scopes or (HOME, NEIGHBOUR):
        async with store.snapshot_view(scope) as view:
            async for row in view.query():
                folded = row.folded
                assert row.checksum == row_checksum(folded)
                found[folded.key] = (row.checksum, folded.execution_id, folded.first_position, folded.last_position)
    return found
