"""Fields that were erased on purpose fold to what stands for them, live and in a replay alike."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import Erased
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.folds.business_object import ERASED, business_object
from noetl.kernel.projections.folds.fold import Fold, Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.report import VerifyReport
from noetl.kernel.replay.verify import Verifier
from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.frozen_ledger import FrozenLedger
from noetl.testing.samples.projected_ledger import HOME, IDS

POSTED = "business.invoice.posted"


def count(row: Row | None, event: Event) -> Row:
    row = row or {"lines": 0}
    return {"lines": row["lines"] + len(event.context["lines"])}


INVOICE = business_object("invoice", events=[POSTED])(count)
TOLERANT = business_object("invoice", events=[POSTED], erased=lambda row, _: {**(row or {"lines": 0}), "known": False})(
    count
)
BY_FIRST_LINE = business_object("invoice", events=[POSTED], key=lambda event: event.context["lines"][0])(count)


class Sealed(MemoryPayloadStore):
    """A store whose tenant's key can be destroyed."""

    gone = False

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        if self.gone:
            raise Erased("the key was destroyed")
        return await super().fetch(scope, ref)


class World:
    """A ledger, a payload store and a projection store."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.payloads = Sealed()
        self.store = MemoryProjectionStore()
        self.recorded = False

    async def erasures(self, _tenant_id: str) -> bool:
        return self.recorded

    async def post(self, lines: int) -> None:
        drafts = Drafts(HOME, IDS.mint)
        context = {"lines": [f"line {number}" for number in range(lines)]}
        draft = drafts.business("business_object/invoice/i1", IDS.mint(), POSTED, context=context)
        await self.ledger.append(draft.stream, [await externalize(self.payloads, draft)])

    async def project(self, fold: Fold) -> dict[str, Row]:
        projector = Projector(
            self.ledger, self.store, FoldRegistry([fold]), Upcasters(), payloads=self.payloads, erasures=self.erasures
        )
        await projector.run_until(await self.ledger.head())
        rows = self.store.query(HOME, fold.projection)
        return {row.folded.key.row_id: row.folded.row async for row in rows}

    async def verified(self, fold: Fold) -> VerifyReport:
        events = [event for shard in range(SHARD_COUNT) async for event in self.ledger.read_shard(shard)]
        parts: tuple[Any, ...] = (FrozenLedger(events), self.payloads, self.store, FoldRegistry([fold]), Upcasters())
        return await Verifier(*parts, erasures=self.erasures).verify(HOME)


@pytest.fixture
async def world() -> World:
    world = World()
    for lines in (2, 9_000, 3):
        await world.post(lines)
    world.payloads.gone = True
    return world


@pytest.mark.parametrize(
    ("fold", "rows"),
    [
        (INVOICE, {"i1": ERASED}),
        (TOLERANT, {"i1": {"lines": 5}}),
        (BY_FIRST_LINE, {"line 0": {"lines": 5}}),
    ],
    ids=["by itself", "as declared", "without a key"],
)
async def test_erased_fields_fold_to_a_declared_value(world: World, fold: Fold, rows: dict[str, Row]) -> None:
    """INV-155."""
    world.recorded = True
    assert await world.project(fold) == rows
    assert (await world.verified(fold)).clean


async def test_a_key_that_is_gone_without_an_event_breaks_the_stream_until_there_is_one(world: World) -> None:
    """INV-155."""
    assert await world.project(INVOICE) == {"i1": {"lines": 2}}
    assert [one.code for one in await world.store.broken_streams()] == ["erased"]
    assert not (await world.verified(INVOICE)).clean
    world.recorded = True
    assert await world.project(INVOICE) == {"i1": ERASED}
    assert (await world.verified(INVOICE)).clean
