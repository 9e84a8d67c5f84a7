"""Transitions of open work in PostgreSQL: lost connections, locks taken in one order, and rights: nobody else writes the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import LeaseRef
from noetl.engine.dispatch.stores import postgres_stores
from noetl.errors import LeaseLost
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.testing.contracts.transitions import HELD
from noetl.testing.contracts.work_harness import WORK_TABLES
from noetl.testing.samples.drafts import PRODUCER
from noetl.testing.samples.executions import IDS, NEIGHBOUR, SCOPE, Driven, joined, one, token

from .work_tables import rows

pytestmark = pytest.mark.service

SOMEBODY_WAITS = """
SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@asynccontextmanager
async def other_process(owner_url: str) -> AsyncIterator[PostgresLedger]:
    """A ledger with a committer of its own, as another process has."""
    database = Database(owner_url, as_roles=True)
    ledger = PostgresLedger(database)
    yield ledger
    await ledger.close()
    await database.close()


async def test_connections_that_are_cut_lose_and_repeat_nothing(ledger: PostgresLedger, database: Database) -> None:
    run = await Driven().begin(ledger, stage=True)
    killer = await database.connect("runtime")
    frame, held = IDS.mint(), token()
    await ledger.transact(run.dispatched(frame, held))
    for index in range(1, 41):
        following, fresh = IDS.mint(), token()
        change = joined(
            run.frame(frame, "frame.committed", run.frame_fence(frame, 1, held)),
            run.dispatched(following, fresh, index=index),
        )
        sent = asyncio.ensure_future(ledger.transact(change))
        if index % 4 == 0:
            await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = current_user AND pid <> pg_backend_pid() AND datname = current_database()"
            )
        assert [answer.event_ids for answer in await sent] == [
            tuple(draft.event_id for draft in append.drafts) for append in change.appends
        ]
        frame, held = following, fresh
    await killer.close()
    assert await rows(database, "stage", "frames_minted, frames_open, rows_done, next_index") == [(41, 1, 400, 410)]


async def test_claims_heartbeats_commits_and_cancels_never_deadlock(
    ledger: PostgresLedger, database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes work on the same executions while these fail, end and are cancelled."""
    monkeypatch.setattr(
        "noetl.kernel.ledger.postgres.committer.AGAIN", ()
    )  # a deadlock must show instead of being tried again
    names = [f"s/1/{number}" for number in range(6)]
    engine = Engine(postgres_stores(database, ledger), ledger, MemoryPayloadStore(), IDS.mint, IDS.mint_many, PRODUCER)
    dispatch = engine.dispatch(SCOPE)

    async def claim(through: PostgresLedger, run: Driven, name: str) -> tuple[Driven, LeaseRef] | None:
        held = token()
        try:
            await through.transact(run.claimed(name, held))
        except LeaseLost:
            return None
        return run, LeaseRef("command", run.execution_id, name, 1, held)

    async def work(through: PostgresLedger, runs: list[Driven]) -> None:
        tried = await asyncio.gather(*(claim(through, run, name) for run in runs for name in names))
        mine = [claimed for claimed in tried if claimed is not None]
        for run, lease in mine:
            frame, held = IDS.mint(), token()
            try:
                await through.transact(run.dispatched(frame, held, index=frame % 1000))
                on_frame = LeaseRef("frame", run.execution_id, str(frame), 1, held)
                await dispatch.heartbeat([on_frame, *(kept for _, kept in reversed(mine))])
                fences = run.frame_fence(frame, 1, held), run.fence(lease.id, 1, lease.token)
                commit = run.frame(frame, "frame.committed", fences[0])
                await through.transact(joined(commit, run.command(lease.id, "command.completed", fences[1])))
            except LeaseLost:
                continue

    async def stop(through: PostgresLedger, runs: list[Driven]) -> None:
        for number, run in enumerate(runs):
            failed = run.drafts.execution(run.execution_id, "command.failed", command_id=names[-1])
            await through.transact(joined(one(failed), run.closed()))
            await through.transact(run.ended("execution.cancelled" if number % 2 else "playbook.failed"))

    async with other_process(owner_url) as second, other_process(owner_url) as third:
        for _ in range(4):
            runs = [await Driven().begin(ledger, *names, stage=True) for _ in range(4)]
            turns = [(ledger, runs), (second, runs[::-1]), (third, runs), (ledger, runs[::-1]), (second, runs)]
            await asyncio.gather(*(work(*turn) for turn in turns), stop(third, runs), stop(second, runs[::-1]))
    assert [await rows(database, table) for table in WORK_TABLES] == [[], [], [], []]


@pytest.mark.parametrize("kind", ["command.failed", "stage.closed", "execution.cancelled"])
async def test_whoever_ends_what_others_hold_waits_for_them_empty_handed(
    ledger: PostgresLedger, database: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A holder in the middle of its change has its lease and still needs the shard's head."""
    monkeypatch.setattr("noetl.kernel.ledger.postgres.committer.AGAIN", ())
    run = await Driven().begin(ledger, "a/1/0", stage=True)
    await ledger.transact(run.dispatched(IDS.mint(), HELD))
    ends = run.command("a/1/0", kind) if kind == "command.failed" else run.ended(kind)
    async with ledger.decision(SCOPE) as holder, (await database.pool()).acquire() as watcher:
        await holder.connection.execute("SELECT FROM noetl.command FOR UPDATE")
        await holder.connection.execute("SELECT FROM noetl.frame FOR UPDATE")
        ending = asyncio.ensure_future(ledger.transact(run.closed() if kind == "stage.closed" else ends))
        while not await watcher.fetchval(SOMEBODY_WAITS):
            continue
        fact = run.drafts.execution(run.execution_id, "step.entered", node_name="a")
        await holder.append(fact.stream, [fact])
    assert len(await ending) == 1


async def test_heartbeats_take_leases_in_the_order_of_fences(ledger: PostgresLedger, database: Database) -> None:
    run = await Driven().begin(ledger, "a/1/0", "b/1/0")
    leases = [LeaseRef("command", run.execution_id, name, 1, token()) for name in ("a/1/0", "b/1/0")]
    for lease in reversed(leases):  # so that they lie in the other order on disk
        await ledger.transact(run.claimed(lease.id, lease.token))
    engine = Engine(postgres_stores(database, ledger), ledger, MemoryPayloadStore(), IDS.mint, IDS.mint_many, PRODUCER)
    async with database.transaction(SCOPE) as holder, (await database.pool()).acquire() as watcher:
        await holder.execute("SELECT FROM noetl.command WHERE command_id = $1 FOR UPDATE", leases[0].id)
        beat = asyncio.ensure_future(engine.dispatch(SCOPE).heartbeat(leases[::-1]))
        while not await watcher.fetchval(SOMEBODY_WAITS):
            continue
        await holder.execute("SELECT FROM noetl.command WHERE command_id = $1 FOR UPDATE", leases[1].id)
    assert await beat == []


@pytest.mark.parametrize("table", WORK_TABLES)
async def test_rows_of_one_organization_are_not_seen_in_another(
    ledger: PostgresLedger, database: Database, table: str
) -> None:
    """INV-22."""
    mine = await Driven().begin(ledger, "a/1/0", stage=True)
    await ledger.transact(mine.dispatched(IDS.mint(), token()))
    assert len(await rows(database, table)) == 1
    assert await rows(database, table, scope=NEIGHBOUR) == []
    async with database.transaction(None) as connection:
        assert await connection.fetch(f"SELECT * FROM noetl.{table}") == []
    async with database.transaction(None, "reaper") as connection:
        assert len(await connection.fetch(f"SELECT * FROM noetl.{table}")) == 1


@pytest.mark.parametrize("role", ["runtime", "projector", "retention", "reaper"])
async def test_no_role_writes_the_rows_itself(database: Database, role: Role) -> None:
    """INV-31."""
    for table in WORK_TABLES:
        for statement in (
            f"INSERT INTO noetl.{table} SELECT * FROM noetl.{table}",
            f"UPDATE noetl.{table} SET execution_id = execution_id",
            f"DELETE FROM noetl.{table}",
            f"TRUNCATE noetl.{table}",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with database.transaction(SCOPE, role) as connection:
                    await connection.execute(statement)


async def test_heartbeats_move_the_times_of_a_lease_and_nothing_else(
    ledger: PostgresLedger, database: Database
) -> None:
    """INV-31."""
    run = await Driven().begin(ledger, "a/1/0", stage=True)
    await ledger.transact(run.dispatched(IDS.mint(), token()))
    granted = {}
    async with database.transaction(SCOPE) as connection:
        for table in (*WORK_TABLES, "catalog", "worker"):
            columns = await connection.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0"
                " AND has_column_privilege('noetl_runtime', attrelid, attnum, 'UPDATE')",
                f"noetl.{table}",
            )
            granted[table] = {row["attname"] for row in columns}
        for table in ("command", "frame"):
            moved = await connection.execute(f"UPDATE noetl.{table} SET lease_until = now(), last_heartbeat = now()")
            assert moved == "UPDATE 1"
    lease = {"lease_until", "last_heartbeat"}
    assert granted == {
        "execution_head": set(),
        "stage": set(),
        "command": lease,
        "frame": lease,
        "catalog": {"removed"},
        "worker": {"pool", "slots", "labels", "last_heartbeat"},
    }


async def test_what_works_behind_an_append_cannot_be_called_by_itself(database: Database) -> None:
    async with database.transaction(None) as connection:
        callable_ones = await connection.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'noetl'::regnamespace"
            " AND has_function_privilege('noetl_runtime', oid, 'EXECUTE')"
            " AND proname IN ('append', 'append_groups', 'apply_work', 'broken_fences', 'lock_work',"
            " 'overtaken')"
        )
    assert [row["proname"] for row in callable_ones] == ["append"]
