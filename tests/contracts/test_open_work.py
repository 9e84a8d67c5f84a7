"""Rows of open work and of the catalog follow from the events: the fold equals them at every step, and damage is named."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.open_work import SHOWN, open_work_differences
from noetl.kernel.replay.report import Difference
from noetl.testing.contracts.open_work.story import whole_story
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import PRODUCER, Drafts
from noetl.testing.samples.executions import IDS, SCOPE, Driven

pytestmark = pytest.mark.service

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: first
  path: tests/first
workflow:
  - step: start
    tool:
      kind: noop
"""


@pytest.fixture
def found(database: Database, ledger: PostgresLedger) -> Projections:
    return connect(database, ledger)


async def differences(database: Database, execution_id: int | None = None) -> list[Difference]:
    return await open_work_differences(database, SCOPE, execution_id, Upcasters())


async def damage(owner_url: str, statement: str, *values: Any) -> None:
    """Change rows behind the product's back, as only a superuser can."""
    connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    try:
        status = await connection.execute(statement, *values)
    finally:
        await connection.close()
    assert not status.endswith(" 0"), f"nothing was changed by {statement}"


@pytest.fixture
async def story(ledger: PostgresLedger, found: Projections) -> Driven:
    run = Driven()
    for change in whole_story(run)[:-2]:
        await ledger.transact(change)
    return run


WRONG = {
    "execution_head": [
        ("parent_execution_id", "7"),
        ("parent_command_id", "NULL"),
        ("catalog_id", "'other'"),
        ("path", "'other'"),
        ("requested_at", "requested_at + interval '1 microsecond'"),
        ("deadline", "now()"),
    ],
    "command": [
        ("step_name", "'other'"),
        ("tool_kind", "'other'"),
        ("status", "'SUSPENDED'"),
        ("attempt", "attempt + 1"),
        ("worker", "'other'"),
        ("lease_token", "gen_random_uuid()"),
        ("lease_seconds", "lease_seconds + 1"),
        ("available_at", "available_at + interval '1 microsecond'"),
        ("stage_id", "8"),
        ("loop_id", "8"),
        ("child_execution_id", "8"),
        ("issued_event_id", "issued_event_id + 1"),
        ("near", "near - 'zone'"),
    ],
    "stage": [
        ("loop_id", "8"),
        ("step_name", "'other'"),
        ("kind", "'fanout'"),
        ("total_rows", "8"),
        *((name, f"{name} + 1") for name in ("next_index", "frames_minted", "frames_open", "frames_failed")),
        *((name, f"{name} + 1") for name in ("rows_done", "rows_failed", "errors")),
        ("ctx", 'ctx || \'{"c.d": "x"}\''),
        ("frame_policy", "frame_policy || '{\"max_rows\": true}'"),
    ],
    "frame": [
        ("stage_id", "8"),
        ("loop_id", "8"),
        ("shard_id", "'other'"),
        ("status", "'LEASED'"),
        ("frame_index", "frame_index + 1"),
        ("first_index", "first_index + 1"),
        ("row_count", "row_count + 1"),
        ("attempt", "attempt + 1"),
        ("worker", "'other'"),
        ("command_id", "'other'"),
        ("lease_token", "gen_random_uuid()"),
        ("lease_seconds", "lease_seconds + 1"),
        ("input_ref", "input_ref || '{\"rows\": 11}'"),
        ("checkpoint", "NULL"),
    ],
}
KEYS = {
    "execution_head": "execution_id = $1",
    "command": "execution_id = $1 AND command_id = 'a/1/1'",
    "stage": "execution_id = $1 AND stage_id = $2",
    "frame": "execution_id = $1 AND status = 'FREE'",
}
ID = {"execution_head": "execution_id", "command": "command_id", "stage": "stage_id", "frame": "frame_id"}
NOT_FOLDED = {"tenant_id", "organization_id", "execution_id", "lease_until", "last_heartbeat"}
WHERE = {
    "execution_head": "open_execution",
    "command": "open_command",
    "stage": "open_stage",
    "frame": "open_frame",
}


@pytest.mark.no_parity
@pytest.mark.parametrize("table", WRONG)
async def test_every_column_that_was_changed_is_named(
    story: Driven, database: Database, found: Projections, owner_url: str, table: str
) -> None:
    await found.project()
    values = (story.execution_id, story.stage_id)[: 2 if table == "stage" else 1]
    await damage(owner_url, f"CREATE TABLE noetl.kept AS SELECT * FROM noetl.{table} WHERE {KEYS[table]}", *values)
    for column, value in WRONG[table]:
        await damage(owner_url, f"UPDATE noetl.{table} SET {column} = {value} WHERE {KEYS[table]}", *values)
        (difference,) = await differences(database)
        assert (difference.where, difference.field) == (WHERE[table], column)
        assert (await found.verifier.verify(SCOPE, story.execution_id)).differences == [difference]
        back = f"t.execution_id = k.execution_id AND t.{ID[table]} = k.{ID[table]}"
        await damage(
            owner_url, f"UPDATE noetl.{table} AS t SET {column} = k.{column} FROM noetl.kept AS k WHERE {back}"
        )
    async with database.transaction(SCOPE) as connection:
        (row,) = await connection.fetch(f"SELECT * FROM noetl.{table} WHERE {KEYS[table]}", *values)
    assert {column for column, _ in WRONG[table]} == set(row.keys()) - NOT_FOLDED - {ID[table]}


@pytest.mark.no_parity
@pytest.mark.parametrize("table", WRONG)
async def test_a_row_that_is_missing_is_named(story: Driven, database: Database, owner_url: str, table: str) -> None:
    values = (story.execution_id, story.stage_id)[: 2 if table == "stage" else 1]
    await damage(owner_url, f"DELETE FROM noetl.{table} WHERE {KEYS[table]}", *values)
    (difference,) = await differences(database)
    assert (difference.where, difference.field, difference.found) == (WHERE[table], "row", None)
    assert difference.expected["execution_id"] == str(story.execution_id)
    assert difference.id.startswith(str(story.execution_id))


@pytest.mark.no_parity
async def test_an_execution_without_any_row_is_named(story: Driven, database: Database, owner_url: str) -> None:
    for table in WRONG:
        await damage(owner_url, f"DELETE FROM noetl.{table}")
    assert {item.where for item in await differences(database)} == set(WHERE.values())


@pytest.mark.no_parity
@pytest.mark.parametrize("table", WRONG)
async def test_a_row_of_an_ended_execution_is_named(
    story: Driven, ledger: PostgresLedger, database: Database, found: Projections, owner_url: str, table: str
) -> None:
    await damage(owner_url, f"CREATE TABLE noetl.kept AS SELECT * FROM noetl.{table} WHERE tenant_id = 'acme'")
    await ledger.transact(story.ended("execution.cancelled"))
    assert await differences(database) == []
    await damage(owner_url, f"INSERT INTO noetl.{table} SELECT * FROM noetl.kept LIMIT 1")
    (difference,) = await differences(database)
    assert (difference.where, difference.field, difference.expected) == (WHERE[table], "row", None)
    assert "has ended" in difference.found
    await found.project()
    report = await found.verifier.verify(SCOPE)
    assert [item.where for item in report.differences] == [WHERE[table]]
    assert WHERE[table] in report.differences[0].sentence()


@pytest.mark.no_parity
@pytest.mark.parametrize("known", ["nothing", "an execution the engine does not drive"])
async def test_a_row_no_event_speaks_of_is_named(
    ledger: PostgresLedger, database: Database, found: Projections, owner_url: str, known: str
) -> None:
    execution_id = IDS.mint()
    if known != "nothing":
        draft = Drafts(SCOPE, IDS.mint).execution(execution_id, "execution.requested")
        await ledger.append(draft.stream, [draft])
    await damage(
        owner_url,
        "INSERT INTO noetl.execution_head VALUES ('acme', 'care', $1, NULL, NULL, 'c', 'p', now(), NULL)",
        execution_id,
    )
    assert await found.verifier.scopes() == [SCOPE]
    (difference,) = await differences(database)
    assert (difference.where, difference.id, difference.expected) == ("open_execution", str(execution_id), None)


@pytest.mark.no_parity
async def test_a_column_the_fold_does_not_know_is_named(story: Driven, database: Database, owner_url: str) -> None:
    await damage(owner_url, "ALTER TABLE noetl.execution_head ADD COLUMN mood text")
    (difference,) = await differences(database)
    assert (difference.where, difference.field) == ("open_execution", "mood")


@pytest.mark.no_parity
async def test_one_execution_is_compared_without_the_others(
    story: Driven, ledger: PostgresLedger, database: Database, owner_url: str
) -> None:
    other = await Driven().begin(ledger, "a/1/0")
    await damage(owner_url, "UPDATE noetl.command SET attempt = 9 WHERE execution_id = $1", other.execution_id)
    assert await differences(database, story.execution_id) == []
    (difference,) = await differences(database, other.execution_id)
    assert (difference.id, difference.expected, difference.found) == (f"{other.execution_id}/a/1/0", 0, 9)


@pytest.mark.no_parity
async def test_a_whole_shelf_of_damage_is_told_in_a_few_differences(
    ledger: PostgresLedger, database: Database, owner_url: str
) -> None:
    for _ in range(4):
        await Driven().begin(ledger, *(f"a/1/{number}" for number in range(9)))
    await damage(owner_url, "UPDATE noetl.command SET attempt = attempt + 1")
    assert SHOWN <= len(await differences(database)) < 2 * SHOWN


async def test_what_heartbeats_move_is_not_compared(story: Driven, database: Database) -> None:
    async with database.transaction(SCOPE) as connection:
        for table in ("command", "frame"):
            await connection.execute(f"UPDATE noetl.{table} SET lease_until = now(), last_heartbeat = now()")
    assert await differences(database) == []


@pytest.fixture
async def catalog(ledger: PostgresLedger, database: Database) -> Catalog:
    """A catalog with three versions of one path, of which one is removed and one was removed and restored."""
    catalog = Catalog(PostgresEntries(database, ledger), MemoryPayloadStore(), IDS.mint, PRODUCER)
    for number in range(3):
        await catalog.register(SCOPE, f"{PLAYBOOK}    desc: number {number}\n")
    for version, removed in ((1, True), (2, True), (2, False)):
        await catalog.set_removed(SCOPE, "tests/first", version, removed=removed)
    return catalog


async def test_the_catalog_equals_its_events(catalog: Catalog, database: Database) -> None:
    assert [entry.removed for entry in await catalog.versions(SCOPE, "tests/first")] == [True, False, False]
    assert await differences(database) == []


@pytest.mark.no_parity
@pytest.mark.parametrize(
    ("statement", "fields"),
    [
        ("UPDATE noetl.catalog SET path = 'other' WHERE version = 2", ["path"]),
        ("UPDATE noetl.catalog SET version = 9, kind = 'other' WHERE version = 2", ["kind", "version"]),
        ("UPDATE noetl.catalog SET digest = 'ab' WHERE version = 2", ["digest"]),
        ("UPDATE noetl.catalog SET content = content || ' ' WHERE version = 2", ["content_sha256"]),
        ("UPDATE noetl.catalog SET removed = NOT removed", ["removed"] * 3),
        ("DELETE FROM noetl.catalog WHERE version = 2", ["row"]),
        ("UPDATE noetl.catalog SET catalog_id = catalog_id || 'x' WHERE version = 2", ["row", "row"]),
    ],
)
async def test_a_version_that_was_changed_is_named(
    catalog: Catalog, database: Database, found: Projections, owner_url: str, statement: str, fields: list[str]
) -> None:
    """INV-43."""
    await damage(owner_url, statement)
    report = await found.verifier.verify(SCOPE)
    assert [(item.where, item.field) for item in report.differences] == [("catalog", field) for field in fields]
