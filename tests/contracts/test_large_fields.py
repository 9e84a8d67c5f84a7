"""Fields in the payload store, over PostgreSQL: a stream whose fields are lost stands still, is told of, and goes on."""

from __future__ import annotations

import time

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.port import referred_key
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.upcast import Upcasters
from noetl.language.alert.rule import Condition
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.metrics.projections import projection_lags
from noetl.services.alerts.conditions import look
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.no_parity]

OWN, NEIGHBOUR = Scope("acme", "care"), Scope("globex", "care")
POSTED = "business.invoice.posted"
IDS = SnowflakeGenerator(31, lambda: time.time_ns() // 1_000_000)


@business_object("invoice", events=[POSTED])
def invoice(row: Row | None, event: Event) -> Row:
    row = row or {"lines": 0}
    return {"lines": row["lines"] + len(event.context["lines"])}


def neighbours_name(name: str) -> str:
    """Name an invoice of the neighbour in the same shard."""
    shard = OWN.stream(f"invoice/{name}").shard
    return next(one for one in map(str, range(1000)) if NEIGHBOUR.stream(f"invoice/{one}").shard == shard)


class Invoices:
    """Invoices of two tenants in one ledger."""

    def __init__(self, database: Database, ledger: PostgresLedger) -> None:
        self.payloads = MemoryPayloadStore()
        self.folds = FoldRegistry()
        self.folds.add(invoice)
        self.database = database
        self.found: Projections = connect(database, ledger, payloads=self.payloads, folds=self.folds)

    async def post(self, scope: Scope, name: str, lines: int) -> str:
        """Record lines of an invoice; return the key of the object that has them, if one has."""
        context = {"lines": [{"item": number} for number in range(lines)]}
        draft = Drafts(scope, IDS.mint).business(f"invoice/{name}", IDS.mint(), POSTED, context=context)
        slim = await externalize(self.payloads, draft)
        await self.found.ledger.append(draft.stream, [slim])
        return "" if slim.fields_ref is None else referred_key(scope, slim.fields_ref)

    async def project(self) -> None:
        """Project with a projector that knows nothing of the one before."""
        found = self.found
        projector = Projector(
            found.ledger, found.store, self.folds, Upcasters(), payloads=self.payloads, rereads=found.history
        )
        await projector.run_until(await found.ledger.head())

    async def lines(self, scope: Scope) -> list[int]:
        rows = self.found.store.query(scope, "business_object/invoice")
        return [row.folded.row["lines"] async for row in rows]

    async def alerts(self, scope: Scope) -> list[str]:
        async with self.database.transaction(scope) as connection:
            return [one.subject for one in (await look(connection, Condition(on="stream_broken"))).found]


async def test_a_lost_object_stops_its_own_stream_until_it_is_back(database: Database, ledger: PostgresLedger) -> None:
    """INV-153, INV-154."""
    invoices = Invoices(database, ledger)
    other = neighbours_name("1")
    await invoices.post(OWN, "1", 10)
    key = await invoices.post(OWN, "1", 20_000)
    lost = invoices.payloads.kept.pop(key)
    await invoices.post(OWN, "1", 1)
    await invoices.post(NEIGHBOUR, other, 30_000)
    await invoices.project()
    assert await invoices.lines(OWN) == [10]
    assert await invoices.lines(NEIGHBOUR) == [30_000]
    assert await invoices.found.store.checkpoints() == await ledger.head()
    (broken,) = await invoices.found.store.broken_streams()
    report = await invoices.found.verifier.verify(OWN)
    (difference,) = report.differences
    assert all(part.equal for part in report.projections)
    assert (difference.where, difference.id) == ("stream", "invoice/1")
    assert f"event {broken.event_id} at position {broken.position}" in difference.field
    assert (await invoices.found.verifier.verify(NEIGHBOUR)).clean
    assert await invoices.alerts(OWN) == ["invoice/1"]
    assert await invoices.alerts(NEIGHBOUR) == []
    assert sum(row["broken"] for row in await projection_lags(database)) == 1

    invoices.payloads.kept[key] = lost
    await invoices.post(OWN, "1", 2)
    await invoices.project()
    assert await invoices.lines(OWN) == [20_013]
    assert await invoices.found.store.broken_streams() == []
    assert await invoices.alerts(OWN) == []
    state = await invoices.found.replay.state(OWN, projection="business_object/invoice")
    assert [row["row"] for row in state.rows["business_object/invoice"]] == [{"lines": 20_013}]
    assert (await invoices.found.verifier.verify(OWN)).clean


async def test_two_projectors_of_one_shard_agree_on_what_is_broken(database: Database, ledger: PostgresLedger) -> None:
    """INV-154."""
    invoices = Invoices(database, ledger)
    found, other = invoices.found, neighbours_name("1")
    first = Projector(found.ledger, found.store, invoices.folds, Upcasters(), payloads=invoices.payloads)
    await invoices.post(NEIGHBOUR, other, 1)
    await first.run_until(await ledger.head())
    key = await invoices.post(OWN, "1", 20_000)
    lost = invoices.payloads.kept.pop(key)
    await invoices.project()
    # What the first one knew of the shard was right when it last looked.
    await invoices.post(OWN, "1", 1)
    await first.run_until(await ledger.head())
    assert await invoices.lines(OWN) == []
    invoices.payloads.kept[key] = lost
    await invoices.project()
    await invoices.post(OWN, "1", 1)
    await first.run_until(await ledger.head())
    assert await invoices.lines(OWN) == [20_002]
    assert (await found.verifier.verify(OWN)).clean
