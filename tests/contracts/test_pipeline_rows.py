"""Rows of data pipelines follow from the events: the fold equals them at every step, and damage is named."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from noetl.errors import AlreadyRecorded
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.projections.folds.organization.fold import PIPELINE_EVENTS
from noetl.kernel.projections.folds.organization.tables import KEYS
from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.model.catalogue.rows import APPLIED_BY, types_applied_by
from noetl.model.stream import Scope
from noetl.testing.samples.executions import NEIGHBOUR, SCOPE, joined, token
from noetl.testing.samples.pipelines import Piped

from .story_pipelines import what_seldom_happens, whole_story
from .work_tables import rows

pytestmark = pytest.mark.service


async def differences(database: Database, scope: Scope = SCOPE) -> list[str]:
    return [found.sentence() for found in await pipeline_differences(database, scope)]


async def test_the_fold_equals_the_rows_after_every_change(ledger: PostgresLedger, database: Database) -> None:
    """INV-48."""
    dag = Piped()
    story = [*whole_story(dag), *what_seldom_happens(dag)]
    for number, change in enumerate(story):
        await ledger.transact(change)
        assert await differences(database) == [], number
    told = {draft.event_type for change in story for append in change.appends for draft in append.drafts}
    own = {name for function in {*APPLIED_BY.values()} - {"apply_open_work"} for name in types_applied_by(function)}
    assert told >= PIPELINE_EVENTS == own
    assert all([len(await rows(database, table)) for table in KEYS])


async def test_the_whole_story_in_one_change_gives_the_same_rows(ledger: PostgresLedger, database: Database) -> None:
    dag = Piped()
    held = token()
    await ledger.transact(dag.deployed())
    task = [dag.created("a"), dag.claimed("a", held), dag.task("a", "task.completed", meta={"attempt": 1})]
    drafts = [draft for change in task for draft in change.appends[0].drafts]
    append = task[0].appends[0]._replace(drafts=drafts)
    await ledger.transact(joined(Transition((append,)), dag.partition("all"), dag.partition("day=2")))
    assert await differences(database) == []
    assert await rows(database, "task", "status, attempt") == [("Completed", 1)]


async def test_tasks_that_change_together_each_get_what_their_own_event_says(
    ledger: PostgresLedger, database: Database
) -> None:
    """INV-48."""
    dag, names = Piped(), [f"task-{number}" for number in range(24)]
    held = {name: token() for name in names}
    await ledger.transact(dag.deployed())
    await ledger.transact(joined(*(dag.created(name) for name in names)))
    await ledger.transact(joined(*(dag.claimed(name, held[name]) for name in names)))
    assert await differences(database) == []
    assert sorted(await rows(database, "task", "status, lease_token::text")) == sorted(
        ("Running", one) for one in held.values()
    )
    ended = [dag.task(name, "task.completed", meta={"attempt": 1}) for name in names[1:]]
    failed = dag.task(names[0], "task.attempt_failed", meta={"attempt": 1, "delay_seconds": 1})
    await ledger.transact(joined(*ended, failed))
    assert await differences(database) == []
    assert sorted(await rows(database, "task", "status")) == [("Completed",)] * 23 + [("Failed",)]


async def test_a_task_waits_runs_fails_and_ends(ledger: PostgresLedger, database: Database) -> None:
    dag, held = Piped(), token()
    columns = "status, attempt, worker, lease_token::text, available_at IS NULL, ended_at IS NULL, error"
    await ledger.transact(dag.deployed())
    await ledger.transact(dag.created("a"))
    assert await rows(database, "task", columns) == [("Queued", 0, None, None, False, True, None)]
    await ledger.transact(dag.claimed("a", held))
    assert await rows(database, "task", columns) == [("Running", 1, "w1", held, False, True, None)]
    await ledger.transact(dag.task("a", "task.attempt_failed", dag.fence("a", 1, held), error="no"))
    assert await rows(database, "task", columns) == [("Failed", 1, "w1", None, False, True, "no")]
    await ledger.transact(dag.claimed("a", held, 2))
    await ledger.transact(dag.task("a", "task.completed", dag.fence("a", 2, held), meta={"attempt": 2}))
    assert await rows(database, "task", columns) == [("Completed", 2, "w1", None, True, False, None)]


async def test_only_the_last_commit_of_a_partition_is_current(ledger: PostgresLedger, database: Database) -> None:
    dag = Piped()
    for version in (1, 2):
        await ledger.transact(dag.partition("day=1", version=version))
    await ledger.transact(dag.partition("day=2"))
    await ledger.transact(dag.partition("day=2", "partition.dropped", version=2))
    found = await rows(database, "partition_version", "partition_key, version, current, dropped, manifest_ref IS NULL")
    assert sorted(found) == [
        ("day=1", 1, False, False, False),
        ("day=1", 2, True, False, False),
        ("day=2", 1, False, False, False),
        ("day=2", 2, True, True, True),
    ]


async def test_what_has_to_follow_is_recorded_with_the_event(ledger: PostgresLedger, database: Database) -> None:
    dag, held = Piped(), token()
    await ledger.transact(dag.created("a"))
    await ledger.transact(dag.claimed("a", held))
    await ledger.transact(dag.task("a", "task.attempt_failed", dag.fence("a", 1, held), meta={"delay_seconds": 60}))
    await ledger.transact(dag.partition("day=1"))
    told = "kind, coalesce(payload ->> 'attempt', payload ->> 'version'), (available_at - created_at)::text, status"
    assert sorted(await rows(database, "outbox", told)) == [
        ("enqueue_task", "1", "00:00:00", "Pending"),
        ("enqueue_task", "2", "00:01:00", "Pending"),
        ("route_event", "1", "00:00:00", "Pending"),
    ]


async def test_a_task_retried_by_hand_is_delivered_again(ledger: PostgresLedger, database: Database) -> None:
    dag = Piped()
    await ledger.transact(dag.created("a"))
    await ledger.transact(dag.task("a", "task.cancelled", dag.fence("a", 0, mode="free"), meta={"attempt": 0}))
    async with database.transaction(SCOPE) as connection:
        await connection.execute("UPDATE noetl.outbox SET status = 'Done', attempts = 1, processed_at = now()")
    await ledger.transact(dag.task("a", "task.retried", dag.fence("a", mode="ended"), meta={"extra_attempts": 1}))
    assert await rows(database, "outbox", "status, attempts, processed_at") == [("Pending", 0, None)]
    assert await rows(database, "task", "status, max_attempts") == [("Queued", 4)]


async def test_cursors_never_go_back(ledger: PostgresLedger, database: Database) -> None:
    dag = Piped()
    for name, version in (("a", 3), ("b", 7), ("c", 5)):
        await ledger.transact(dag.created(name))
        done = {"cursors": [dag.cursor("day=1", version), dag.cursor("day=1", version - 1)]}
        await ledger.transact(dag.task(name, "task.completed", context=done))
    assert await rows(database, "dataset_cursor", "partition_key, version") == [("day=1", 7)]


async def test_two_datasets_may_exchange_their_names_but_never_share_one(
    ledger: PostgresLedger, database: Database
) -> None:
    shop, farm = Piped(), Piped(dag="farm")
    await ledger.transact(shop.deployed(name="orders"))
    with pytest.raises(AlreadyRecorded):
        await ledger.transact(farm.deployed(name="orders"))
    await ledger.transact(farm.deployed(name="harvest"))
    await ledger.transact(joined(shop.deployed(2, name="harvest"), farm.deployed(2, name="orders")))
    assert sorted(await rows(database, "dataset", "producer_dag, name")) == [("farm", "orders"), ("shop", "harvest")]


async def test_organizations_with_equal_names_never_meet(ledger: PostgresLedger, database: Database) -> None:
    """INV-22."""
    for scope in (SCOPE, NEIGHBOUR):
        for change in whole_story(Piped(scope)):
            await ledger.transact(change)
    for table in KEYS:
        mine = await rows(database, table, "tenant_id, organization_id")
        assert set(mine) == {(SCOPE.tenant_id, SCOPE.organization_id)}, table
        assert len(mine) == len(await rows(database, table, "1", NEIGHBOUR)), table
    assert await differences(database) == await differences(database, NEIGHBOUR) == []
    async with database.transaction(None, "reaper") as connection:
        for table in ("task", "outbox", "job", "dag_version", "schedule", "cron_slot", "dag_current_version"):
            assert await connection.fetchval(f"SELECT count(DISTINCT tenant_id) FROM noetl.{table}") == 2


async def test_only_the_append_writes_rows_of_pipelines(ledger: PostgresLedger, database: Database) -> None:
    """INV-49."""
    for change in whole_story(Piped()):
        await ledger.transact(change)
    moved = {"task": {"lease_until", "last_heartbeat"}, "outbox": {"attempts", "last_error", "lease_token"}}
    moved["outbox"] |= {"status", "lease_until", "processed_at"}
    moved["delivery"] = moved["cron_slot"] = moved["view_version"] = moved["task"]
    moved["retired_generation"] = moved["trimmed_version"] = {"files_removed_at"}
    async with database.transaction(SCOPE) as connection:
        for table in KEYS:
            granted = await connection.fetch(
                "SELECT column_name AS name, privilege_type AS may FROM information_schema.column_privileges"
                " WHERE table_schema = 'noetl' AND table_name = $1 AND grantee = 'noetl_runtime'"
                " AND privilege_type <> 'SELECT'",
                table,
            )
            assert {row["name"] for row in granted} == moved.get(table, set()), table
            assert {row["may"] for row in granted} <= {"UPDATE"}, table


OTHER = {
    "text": "coalesce({0}, '') || 'x'",
    "boolean": "NOT {0}",
    "bigint": "coalesce({0}, 0) + 1",
    "integer": "coalesce({0}, 0) + 1",
    "double precision": "coalesce({0}, 0) + 1",
    "uuid": "gen_random_uuid()",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 second'",
    "jsonb": """'{{"other": true}}'""",
    "ARRAY": "'{{}}'",
}
ALLOWED = {
    "dag_version.status": "'failed'",
    "task.status": "CASE {0} WHEN 'Skipped' THEN 'Canceled' ELSE 'Skipped' END",
    "dataset.read_roles": "'{{x}}'",
}
ALLOWED["app_user.role"] = "'writer'"
ALLOWED["query_audit.outcome"] = "CASE {0} WHEN 'failed' THEN 'refused' ELSE 'failed' END"
ALLOWED |= {"schedule.kind": "'source'", "cron_slot.status": "'FAILED'"}
ALLOWED["schedule.mode"] = "CASE {0} WHEN 'latest_only' THEN 'every_plan' ELSE 'latest_only' END"
ALLOWED["pin.kind"] = "CASE {0} WHEN 'mark' THEN 'dataset' ELSE 'mark' END"
ALLOWED |= {"data_invalidation.scope": "CASE {0} WHEN 'partition' THEN 'row_range' ELSE 'partition' END"}
ALLOWED |= {
    "data_invalidation.reason": "'reorg'",
    "backfill.status": "CASE {0} WHEN 'paused' THEN 'failed' ELSE 'paused' END",
}
ALLOWED["data_invalidation.status"] = "CASE {0} WHEN 'open' THEN 'closed' ELSE 'open' END"
ALLOWED |= {"alert.severity": "'critical'", "alert.status": "CASE {0} WHEN 'open' THEN 'resolved' ELSE 'open' END"}
ALLOWED["view_version.status"] = "CASE {0} WHEN 'superseded' THEN 'building' ELSE 'superseded' END"
ALLOWED |= {"delivery.status": "'Sending'", "delivery.occasion": "'test'"}
ALLOWED["outbox.kind"] = "CASE {0} WHEN 'enqueue_task' THEN 'route_event' ELSE 'enqueue_task' END"
UNSEEN_SLOTS = {
    f"{table}.{name}" for table in ("cron_slot", "view_version") for name in ("lease_until", "last_heartbeat")
}
UNSEEN_FILES = {"retired_generation.files_removed_at", "trimmed_version.files_removed_at"}
UNSEEN = (
    UNSEEN_FILES
    | UNSEEN_SLOTS
    | {"task.lease_until", "task.last_heartbeat", "delivery.lease_until", "delivery.last_heartbeat"}
    | {f"outbox.{name}" for name in ("status", "attempts", "last_error", "lease_token", "lease_until", "processed_at")}
)


@pytest.mark.no_parity
async def test_every_column_that_was_changed_behind_our_back_is_named(
    ledger: PostgresLedger, database: Database, owner_url: str
) -> None:
    """INV-48."""
    for change in whole_story(Piped()):
        await ledger.transact(change)
    admin = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    columns = await admin.fetch(
        "SELECT table_name, column_name, data_type, row_number() OVER (PARTITION BY table_name) AS turn"
        " FROM information_schema.columns WHERE table_schema = 'noetl' AND table_name = ANY ($1)"
        " AND column_name NOT IN ('tenant_id', 'organization_id')",
        list(KEYS),
    )
    try:
        for turn in range(1, max(row["turn"] for row in columns) + 1):
            # One column of every table at a time: each verification looks at all of them.
            wrong = [tuple(row)[:3] for row in columns if row["turn"] == turn]
            await named_damage(admin, database, [one for one in wrong if f"{one[0]}.{one[1]}" not in UNSEEN])
    finally:
        await admin.close()


async def named_damage(admin: Any, database: Database, wrong: list[tuple[str, str, str]]) -> None:
    """Change one column of a row of each table, check that each is named, and put the rows back."""
    places = {}
    for table, column, kind in wrong:
        place = await admin.fetchval(f"SELECT max(ctid) FROM noetl.{table}")
        await admin.execute(f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM noetl.{table} WHERE ctid = $1", place)
        other = ALLOWED.get(f"{table}.{column}", OTHER[kind]).format(column)
        change = f"UPDATE noetl.{table} SET {column} = {other} WHERE ctid = $1 RETURNING ctid"
        places[table] = await admin.fetchval(change, place)
    found = await pipeline_differences(database, SCOPE)
    for table, column, _ in wrong:
        fields = {one.field.removeprefix("row.").split(".")[0] for one in found if one.where == table}
        assert fields == ({"row"} if column in KEYS[table] else {column}), f"{table}.{column}"
        await admin.execute(f"DELETE FROM noetl.{table} WHERE ctid = $1", places[table])
        await admin.execute(f"INSERT INTO noetl.{table} SELECT * FROM kept_{table}")
        await admin.execute(f"DROP TABLE kept_{table}")


@pytest.mark.no_parity
async def test_a_row_that_is_gone_is_named(ledger: PostgresLedger, database: Database, owner_url: str) -> None:
    """INV-48."""
    for change in whole_story(Piped()):
        await ledger.transact(change)
    admin = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    for table in KEYS:
        await admin.execute(f"DELETE FROM noetl.{table} WHERE ctid = (SELECT max(ctid) FROM noetl.{table})")
    await admin.close()
    found = await differences(database)
    assert [one.split(" ")[0] for one in found] == sorted(KEYS)
    assert all(one.endswith(" and is null") for one in found)
