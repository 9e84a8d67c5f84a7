"""A closed stage is read from the store that has stages, wherever that is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.api.serving import HOME, Server, running

from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.project.folds.registry import FoldRegistry
from noetl.project.folds.stage import STAGE
from noetl.project.postgres import PostgresProjectionStore
from noetl.project.projector import Projector
from noetl.project.upcast import Upcasters
from noetl.testing.postgres import FreshDatabases
from noetl.testing.projecting import a_run, record

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
