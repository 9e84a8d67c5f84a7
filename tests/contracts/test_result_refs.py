"""Where payloads lie, for whoever asks the database: read from the events that carry references, never written twice."""

from __future__ import annotations

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.port import PayloadPlace
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.projected_ledger import HOME, IDS, record

pytestmark = pytest.mark.service

REFS = "SELECT * FROM noetl.result_ref WHERE execution_id = $1 ORDER BY ref_id, part DESC"
OTHER = Scope("globex", "care")


async def projected(database: Database, ledger: PostgresLedger, payloads: PayloadStore) -> None:
    """Project everything, as a process that is set to this payload store."""
    place = PayloadPlace(payloads.store_tier, payloads.address)
    projector = Projector(
        ledger, PostgresProjectionStore(database, place), FoldRegistry(), Upcasters(), payloads=payloads
    )
    await projector.run_until(await ledger.head())


async def test_every_reference_of_an_event_is_found_with_its_place(
    database: Database, ledger: PostgresLedger, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run, caused_by = IDS.mint(), IDS.mint()
    payloads = MemoryPayloadStore()
    data = await payloads.store(HOME, b"rows", "text/csv", rows=4)
    fields = await payloads.store(HOME, b"{}", "application/json")
    for scope in (HOME, OTHER):
        drafts = Drafts(scope, IDS.mint)
        plain = drafts.execution(run)
        given = {"payload_ref": data, "fields_ref": fields} if scope == HOME else {}
        both = drafts.execution(run, node_name="fetch", causation_id=caused_by, **given)
        await record(ledger, [plain, both])

    async with database.transaction(HOME) as connection:
        before = await connection.fetch(REFS, run)
    assert [(row["part"], row["sha256"], row["physical_uri"]) for row in before] == [
        ("payload", data.sha256, None),
        ("fields", fields.sha256, None),
    ], "nobody has projected yet, so nobody has said where the store is"

    local = open_object_store(Connection(path=tmp_path_factory.mktemp("payloads")), compress=True)
    for store in (payloads, local):
        await record(ledger, [Drafts(HOME, IDS.mint).execution(IDS.mint())])
        await projected(database, ledger, store)
        async with database.transaction(HOME) as connection:
            first, second = await connection.fetch(REFS, run)
        assert (first["store_tier"], first["physical_uri"]) == (store.store_tier, store.physical_uri(HOME, data))
        assert second["physical_uri"] == store.physical_uri(HOME, fields)

    async with database.transaction(HOME) as connection:
        event = await connection.fetchrow("SELECT * FROM noetl.event WHERE event_id = $1", first["ref_id"])
    assert event is not None
    assert (first["ref"], first["content_type"], first["bytes_size"]) == (data.uri, "text/csv", 4)
    assert (first["parent_ref_id"], first["name"], first["source_step"]) == (caused_by, "fetch", "fetch")
    assert (first["compression"], first["created_at"]) == ("identity", event["ingest_time"])
    assert (first["shard"], first["execution_id"]) == (event["shard"], run)
    async with database.transaction(OTHER) as connection:
        assert await connection.fetch(REFS, run) == []
