"""What the database roles that hold shards may change, and what a projector that lost its shard may: nothing."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest

from noetl.errors import LeaseLost
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.port import Failure
from noetl.kernel.projections.stores.postgres.held_shards import LeasedShards
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.projected_ledger import HOME, IDS, a_run, record, stored_rows

pytestmark = [pytest.mark.service, pytest.mark.fault]

HOLDING = {"shard_holder", "shard_lease", "stream_durable"}
"""What those who hold shards say of themselves."""
WRITABLE: dict[Role, set[str]] = {
    # Rows that are derived from events, trees and heads over them, and answers that operators' views remember.
    "projector": HOLDING
    | {"projection", "projection_checkpoint", "projection_epoch", "payload_place", "snapshot", "curated_answer"}
    | {"broken_stream", "held_event", "ledger_head", "ledger_node"},
    "relay": HOLDING | {"relay_cursor"},
    "materializer": HOLDING
    | {
        "event",
        "stream",
        "shard",
        "shard_outbox",
        "pending_event",
        "pending_leaf",
        "ledger_link",
        "materialized",
        "divergence",
    },
}
POWERS: dict[Role, set[str]] = {
    # It makes room for what it writes, and ends a change of the write path whose process died.
    "materializer": {"ensure_event_partition", "begin_change", "renew_change", "end_change"},
}
"""Functions that a role may call and that run in the owner's rights."""


class _DoneError(Exception):
    """What was tried was allowed, and is undone."""


@pytest.mark.parametrize("role", list(WRITABLE))
async def test_a_role_that_holds_shards_can_write_what_it_is_there_for_and_nothing_else(
    role: Role, owner_url: str, database: Database
) -> None:
    with psycopg.connect(owner_url) as owner:
        tables = [name for (name,) in owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'noetl'")]
    assert len(tables) > 40
    connection = await database.connect(role)
    allowed = set()
    for table in tables:
        for statement in ("INSERT INTO noetl.{} DEFAULT VALUES", "DELETE FROM noetl.{}", "TRUNCATE noetl.{}"):
            try:
                async with connection.transaction():
                    await connection.execute(statement.format(table))
                    raise _DoneError
            except asyncpg.InsufficientPrivilegeError as refused:
                if "row-level security" in str(refused):
                    allowed.add(table)
            except (asyncpg.PostgresError, _DoneError):
                allowed.add(table)
        changes = await connection.fetchval(
            "SELECT has_any_column_privilege(current_user, 'noetl.' || quote_ident($1), 'UPDATE')", table
        )
        if changes:
            allowed.add(table)
    powerful = await connection.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'noetl'::regnamespace AND prosecdef"
        " AND has_function_privilege(oid, 'EXECUTE')"
    )
    await connection.close()
    # A materializer's own function is not among these: it runs in the caller's rights.
    assert {row["proname"] for row in powerful} == POWERS.get(role, set())
    assert allowed == WRITABLE[role]


async def test_a_projector_that_reads_for_one_organization_sees_no_other(
    database: Database, ledger: PostgresLedger
) -> None:
    """Two organizations record events under the same execution id, as facts may name any."""
    mine, other = HOME, Scope("default", "other")
    drafts = [Drafts(scope, IDS.mint) for scope in (mine, other)]
    run = IDS.mint()
    for one in drafts:
        await record(ledger, [one.business("business/x", run)])
    alone = Database(database.url, as_roles=True, only="projector")
    seen = {}
    for scope in (mine, other, None):
        async with alone.transaction(scope) as connection:
            rows = await connection.fetch("SELECT organization_id FROM noetl.event WHERE execution_id = $1", run)
            seen[scope] = sorted(row["organization_id"] for row in rows)
    await alone.close()
    assert seen == {mine: ["default"], other: ["other"], None: ["default", "other"]}


async def test_a_projector_that_lost_its_shards_writes_nothing(database: Database, ledger: PostgresLedger) -> None:
    """INV-121."""
    """The next holder has not moved any checkpoint yet, so that it is the lease alone that keeps the first one out."""
    await record(ledger, a_run(HOME))
    first, second = (ShardLeases(database, "projector", name, lease_seconds=30, every_seconds=30) for name in "ab")
    store = PostgresProjectionStore(database).held_by(LeasedShards(first))
    projector = Projector(ledger, store, FoldRegistry(), Upcasters())
    await first.start(lambda _: None)
    async with database.transaction(None, "projector") as connection:
        await connection.execute(
            "UPDATE noetl.shard_lease SET lease_until = clock_timestamp() WHERE role = 'projector'"
        )
        await connection.execute("DELETE FROM noetl.shard_holder")
    await second.start(lambda _: None)
    assert len(second.held) == 16
    before = await store.checkpoints()
    with pytest.raises(LeaseLost, match="another projector holds shard"):
        await projector.run_until(await ledger.head())
    grown = next(shard for shard, position in enumerate((await ledger.head()).positions) if position)
    with pytest.raises(LeaseLost):
        await store.record_failure(grown, 0, Failure(code="internal", message="not its business any more"))
    assert await stored_rows(store) == {}
    assert await store.checkpoints() == before
    assert [state.failure for state in await store.shard_states()] == [None] * 16

    held = PostgresProjectionStore(database).held_by(LeasedShards(second))
    await Projector(ledger, held, FoldRegistry(), Upcasters()).run_until(await ledger.head())
    assert await store.checkpoints() == await ledger.head()
    await first.stop()
    await second.stop()
