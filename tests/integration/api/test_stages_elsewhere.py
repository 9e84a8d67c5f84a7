"""A closed stage is read from the store that has stages, wherever that is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.integration.api.serving import HOME, Server, running

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.stage import STAGE
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.testing.samples.projected_ledger import a_run, record
from noetl.testing.servers.postgres import FreshDatabases

pytestmark = pytest.mark.service


@pytest.fixture
async def elsewhere(fresh_databases: FreshDatabases) -> AsyncIterator[Database]:
    """The database of a store that has stages."""
    name = fresh_databases.take()
    database = Database(fresh_databases.url(name), as_roles=True)
    yield database
    await database.close()
    fresh_databases.drop(name)


async def test_a_closed_stage_is_read_where_stages_are_projected(
    server: Server, ledger: PostgresLedger, elsewhere: Database
) -> None:
    events = a_run(HOME)
    (stage_id,) = {event.aggregate_id for event in events if event.aggregate_type == "stage"}
    await record(ledger, events)
    store = PostgresProjectionStore(elsewhere)
    await Projector(ledger, store, FoldRegistry([STAGE]), Upcasters()).run_until(await ledger.head())
    await server.call("GET", f"/api/stages/{stage_id}", status=404)
    services = replace(server.services, stages=elsewhere)
    async with running(services, server.projections, auth=False) as other:
        found = await other.call("GET", f"/api/stages/{stage_id}", status=200)
    assert found["stage_id"] == stage_id
