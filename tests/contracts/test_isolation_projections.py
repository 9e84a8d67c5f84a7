"""Organizations do not see each other's projections: through the store, by raw SQL, and without any scope at all."""

from __future__ import annotations

import asyncpg
import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.stream import Scope
from noetl.testing.contracts.projections.samples import snapshot
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.projected_ledger import IDS, pure_rows, record, stored_rows

pytestmark = pytest.mark.service

SCOPES = (Scope("acme", "care"), Scope("acme", "billing"), Scope("globex", "care"))
TABLES = ("projection", "snapshot")
RUN, LOOP, STAGE, FRAME = (IDS.mint() for _ in range(4))


@pytest.fixture
async def store(database: Database, ledger: PostgresLedger) -> PostgresProjectionStore:
    """Projections of three organizations that use the same ids for everything."""
    store = PostgresProjectionStore(database)
    for scope in SCOPES:
        drafts = Drafts(scope, IDS.mint)
        frame = drafts.frame(RUN, STAGE, FRAME, loop_id=LOOP, payload_ref=drafts.payload())
        start = drafts.execution(RUN, catalog_id=f"{scope.tenant_id}-{scope.organization_id}")
        await record(ledger, [start, drafts.loop(RUN, LOOP, "loop.started"), drafts.stage(RUN, STAGE), frame])
        await store.save_snapshot(snapshot(scope=scope))
    await Projector(ledger, store, FoldRegistry(), Upcasters()).run_until(await ledger.head())
    return store


async def test_each_organization_sees_its_own_execution_under_the_shared_id(store: PostgresProjectionStore) -> None:
    for scope in SCOPES:
        rows = [row.folded async for row in store.query(scope, "execution", {"execution_id": RUN})]
        assert [row.row["catalog_id"] for row in rows] == [f"{scope.tenant_id}-{scope.organization_id}"]


async def test_rows_with_equal_ids_are_folded_apart(ledger: PostgresLedger, store: PostgresProjectionStore) -> None:
    rows = await stored_rows(store, *SCOPES)
    assert rows == await pure_rows(ledger, built_in_folds())
    assert len(rows) == 4 * len(SCOPES)


async def test_an_organization_without_projections_sees_none(store: PostgresProjectionStore) -> None:
    for scope in (Scope("globex", "billing"), Scope("acme", ""), Scope("", "")):
        assert [row async for row in store.query(scope, "execution")] == []
        assert await store.load_snapshots(scope, "execution", "1") == []


@pytest.mark.parametrize("table", [*TABLES, "result_ref"])
async def test_raw_sql_sees_one_organization_and_none_without_a_scope(
    database: Database, store: PostgresProjectionStore, table: str
) -> None:
    owners = f"SELECT DISTINCT tenant_id, organization_id FROM noetl.{table}"
    for scope in SCOPES:
        async with database.transaction(scope) as connection:
            assert [tuple(row) for row in await connection.fetch(owners)] == [(scope.tenant_id, scope.organization_id)]
    async with database.transaction(None) as connection:
        assert await connection.fetch(owners) == []
    async with database.transaction(None, "projector") as connection:
        assert len(await connection.fetch(owners)) == len(SCOPES)


async def test_the_view_of_executions_obeys_the_same_rules(database: Database, store: PostgresProjectionStore) -> None:
    async with database.transaction(SCOPES[0]) as connection:
        rows = await connection.fetch("SELECT tenant_id, organization_id, catalog_id, status FROM noetl.execution")
    assert [tuple(row) for row in rows] == [("acme", "care", "acme-care", "RUNNING")]


@pytest.mark.parametrize("statement", ["DELETE FROM noetl.{}", "UPDATE noetl.{} SET {} = {}", "TRUNCATE noetl.{}"])
async def test_the_runtime_cannot_write_what_projectors_write(
    database: Database, store: PostgresProjectionStore, statement: str
) -> None:
    for table in (*TABLES, "projection_checkpoint", "payload_place"):
        column = {"projection_checkpoint": "position", "payload_place": "address"}.get(table, "checksum")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with database.transaction(SCOPES[0]) as connection:
                await connection.execute(statement.format(table, column, column))
