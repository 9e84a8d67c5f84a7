"""Transitions of open work: all or nothing, under the leases they rely on, and nobody else writes the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noetl.dispatch.engine import Engine
from noetl.dispatch.grants import LeaseRef
from noetl.errors import AlreadyRecorded, LeaseLost, NoetlError, VersionConflict
from noetl.ledger.database import Database, Role
from noetl.ledger.postgres import PostgresLedger
from noetl.ledger.transition import Append, Fence, Transition
from noetl.model.catalogue import ENDING
from noetl.payloads.memory import MemoryPayloadStore
from noetl.testing.drafts import Drafts
from noetl.testing.ledger_reading import everything

from .driven import IDS, NEIGHBOUR, RUN_OUT, SCOPE, Driven, joined, one, rows, token

pytestmark = pytest.mark.service

WORK_TABLES = ("execution_head", "command", "stage", "frame")
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


async def statements(database: Database) -> int:
    async with database.transaction(SCOPE) as connection:
        return int(await connection.fetchval("SELECT count(DISTINCT xmin::text) FROM noetl.event"))


async def everything_stored(database: Database) -> list[object]:
    tables = (*WORK_TABLES, "event", "stream", "idempotency_key")
    return [[tuple(map(str, row)) for row in await rows(database, table)] for table in tables]


async def test_a_change_stands_in_all_its_streams_or_in_none(ledger: PostgresLedger, database: Database) -> None:
    """INV-04."""
    run = await Driven().begin(ledger, "a/1/0")
    before = await everything_stored(database)
    change = joined(run.opened(), run.issued("b/1/0"), run.command("a/1/0", "command.completed"))
    refused = Transition((*change.appends[:2], change.appends[2]._replace(expected_version=7)))
    with pytest.raises(VersionConflict):
        await ledger.transact(refused)
    assert await everything_stored(database) == before
    answers = await ledger.transact(change)
    assert [answer.first_version for answer in answers] == [1, 3, 1]
    assert await rows(database, "command", "command_id") == [("b/1/0",)]
    assert await rows(database, "stage", "stage_id") == [(run.stage_id,)]


async def test_answers_stand_in_the_order_of_the_appends(ledger: PostgresLedger) -> None:
    run = await Driven().begin(ledger)
    change = joined(run.opened(), run.issued("z/1/0"), run.command("a/1/0", "command.claimed"))
    answers = await ledger.transact(change)
    expected = [tuple(draft.event_id for draft in append.drafts) for append in change.appends]
    assert [answer.event_ids for answer in answers] == expected


async def test_a_change_that_is_refused_leaves_others_of_its_statement_standing(
    ledger: PostgresLedger, database: Database
) -> None:
    """INV-29."""
    runs = [await Driven().begin(ledger, "a/1/0") for _ in range(24)]
    before = await statements(database)
    tries = []
    for number, run in enumerate(runs):
        ends = run.command("a/1/0", "command.completed")
        late = ends.appends[0]._replace(expected_version=9)
        lost = run.fence("a/1/0", 5, token())
        tries.append(
            (
                joined(ends, run.opened()),
                Transition((late, *run.opened().appends)),
                Transition((*ends.appends, *run.opened().appends), (lost,)),
            )[number % 3]
        )
    answers = await asyncio.gather(*map(ledger.transact, tries), return_exceptions=True)
    assert await statements(database) == before + 1
    assert [type(answer) for answer in answers] == [tuple, VersionConflict, LeaseLost] * 8
    assert len(await rows(database, "stage")) == 8
    assert len(await rows(database, "command")) == 16


async def test_a_fact_that_stands_already_is_refused_with_its_change_alone(
    ledger: PostgresLedger, database: Database
) -> None:
    runs = [await Driven().begin(ledger, "a/1/0") for _ in range(6)]
    tries = [joined(run.opened(), run.issued("ab"[number % 2] + "/1/0")) for number, run in enumerate(runs)]
    answers = await asyncio.gather(*map(ledger.transact, tries), return_exceptions=True)
    assert [type(answer) for answer in answers] == [AlreadyRecorded, tuple] * 3
    assert len(await rows(database, "stage")) == 3


HELD, STALE = "3b241101-e2bb-4255-8caf-4136c566a962", "9f6c2d1e-0b52-4a53-9d0e-6a1f0c3b7d44"


FENCES: tuple[tuple[float | None, int, str | None, str, bool], ...] = (
    (30.0, 1, HELD, "held", True),
    (30.0, 2, HELD, "held", False),
    (30.0, 0, HELD, "held", False),
    (30.0, 1, STALE, "held", False),
    (30.0, 1, None, "held", False),
    (RUN_OUT, 1, HELD, "held", False),
    (None, 1, HELD, "held", False),
    (RUN_OUT, 1, HELD, "expired", True),
    (RUN_OUT, 2, HELD, "expired", False),
    (RUN_OUT, 1, STALE, "expired", False),
    (30.0, 1, HELD, "expired", False),
    (None, 1, HELD, "expired", False),
    (None, 1, None, "free", True),
    (None, 0, None, "free", False),
    (None, 2, None, "free", False),
    (30.0, 1, None, "free", False),
    (RUN_OUT, 1, None, "free", False),
)
"""How long a lease was given for, attempt and token of the fence, what it asks for, and whether it holds."""


@pytest.mark.parametrize("table", ["command", "frame"])
async def test_a_fence_holds_only_for_the_lease_it_names(ledger: PostgresLedger, table: str) -> None:
    for leased, attempt, given, mode, holds in FENCES:
        run = await Driven().begin(ledger, stage=True)
        frame, seconds = IDS.mint(), leased or 30.0
        if table == "command":
            lease = {"worker": "w1", "attempt": 1, "lease_token": HELD, "lease_seconds": seconds}
            await ledger.transact(run.issued("a/1/0", **lease))
            fence = run.fence("a/1/0", attempt, given, mode)
            if leased is None:
                await ledger.transact(run.command("a/1/0", "command.abandoned"))
        else:
            await ledger.transact(run.dispatched(frame, HELD, seconds=seconds))
            fence = run.frame_fence(frame, attempt, given, mode)
            if leased is None:
                await ledger.transact(run.frame(frame, "frame.abandoned"))
        fact = one(run.drafts.execution(run.execution_id, "step.entered", node_name="a"), fence)
        try:
            answer = await ledger.transact(fact)
        except LeaseLost:
            assert not holds, (leased, attempt, given, mode)
        else:
            assert holds, (leased, attempt, given, mode)
            assert answer[0].first_version > 0


@pytest.mark.parametrize("table", ["command", "frame"])
async def test_a_fence_on_what_does_not_exist_is_broken(ledger: PostgresLedger, table: str) -> None:
    run = await Driven().begin(ledger)
    fence = Fence(table, run.execution_id, "1", 1, HELD)  # type: ignore[arg-type]
    with pytest.raises(LeaseLost):
        await ledger.transact(one(run.drafts.execution(run.execution_id, "step.entered", node_name="a"), fence))


async def test_a_lost_lease_writes_nothing(ledger: PostgresLedger, database: Database) -> None:
    """INV-27."""
    run = await Driven().begin(ledger, "a/1/0", stage=True)
    frame = IDS.mint()
    await ledger.transact(run.dispatched(frame, HELD, seconds=RUN_OUT))
    before, head = await everything_stored(database), await ledger.head()
    fence = run.frame_fence(frame, 1, HELD)
    change = joined(
        run.frame(frame, "frame.committed", fence), run.dispatched(IDS.mint(), token(), index=1), run.issued("b/1/0")
    )
    with pytest.raises(LeaseLost, match="belongs to another holder now, or ran out"):
        await ledger.transact(change)
    assert await everything_stored(database) == before
    assert await ledger.head() == head


def claims(run: Driven, count: int) -> list[Transition]:
    return [run.claimed("a/1/0", token(), worker=f"w{number}") for number in range(count)]


def commits(run: Driven, frame: int, count: int) -> list[Transition]:
    return [run.frame(frame, "frame.committed", run.frame_fence(frame, 1, HELD)) for _ in range(count)]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("what", ["claim", "commit", "complete"])
async def test_of_many_concurrent_holders_of_one_lease_one_wins(
    ledger: PostgresLedger, database: Database, owner_url: str, what: str, processes: int
) -> None:
    """INV-27: also when all of them are written by one statement, whose fences see what stood before it."""
    run = await Driven().begin(ledger, "a/1/0", stage=True)
    frame = IDS.mint()
    await ledger.transact(run.dispatched(frame, HELD))
    if what == "complete":
        await ledger.transact(run.claimed("a/1/0", HELD))
        held = run.fence("a/1/0", 1, HELD)
        tries = [run.command("a/1/0", "command.completed", held) for _ in range(20)]
    else:
        tries = claims(run, 20) if what == "claim" else commits(run, frame, 20)
    async with other_process(owner_url) as second, other_process(owner_url) as third:
        ledgers = (ledger, second, third)[:processes]
        sent = (ledgers[number % processes].transact(item) for number, item in enumerate(tries))
        answers = await asyncio.gather(*sent, return_exceptions=True)
    won = [number for number, answer in enumerate(answers) if isinstance(answer, tuple)]
    assert len(won) == 1
    assert all(isinstance(answer, LeaseLost) for number, answer in enumerate(answers) if number not in won)
    if what == "claim":
        winner = tries[won[0]].appends[0].drafts[0].meta
        assert await rows(database, "command", "worker, lease_token::text") == [
            (winner["worker"], winner["lease_token"])
        ]
    if what == "commit":
        assert await rows(database, "stage", "frames_open, rows_done") == [(0, 10)]


async def test_what_leaves_a_lease_as_it_is_does_not_break_it_for_others_of_the_statement(
    ledger: PostgresLedger, database: Database
) -> None:
    run = await Driven().begin(ledger, stage=True)
    frame = IDS.mint()
    await ledger.transact(run.dispatched(frame, HELD))
    before = await statements(database)
    fence = run.frame_fence(frame, 1, HELD)
    tries = [run.frame(frame, "frame.checkpointed", fence, context={"cursor": {"done": n}}) for n in range(5)]
    await asyncio.gather(*map(ledger.transact, [*tries, *commits(run, frame, 1)]))
    assert await statements(database) == before + 1


async def test_a_holder_that_was_refused_for_another_reason_takes_the_lease_from_nobody(ledger: PostgresLedger) -> None:
    run = await Driven().begin(ledger, "a/1/0")
    first, second = claims(run, 2)
    late = Transition((first.appends[0]._replace(expected_version=3),), first.fences)
    answers = await asyncio.gather(ledger.transact(late), ledger.transact(second), return_exceptions=True)
    assert [type(answer) for answer in answers] == [VersionConflict, tuple]


@pytest.mark.parametrize("ending", ["execution.cancelled", "stage.closed", "command.failed"])
async def test_an_end_earlier_in_the_statement_takes_the_leases_of_those_behind_it(
    ledger: PostgresLedger, database: Database, ending: str
) -> None:
    run, other = await Driven().begin(ledger, stage=True), await Driven().begin(ledger, stage=True)
    frame, following = IDS.mint(), IDS.mint()
    for each in (run, other):
        await ledger.transact(each.issued("a/1/0", stage_id=each.stage_id, loop_id=each.loop_id))
        await ledger.transact(each.dispatched(frame, HELD))
    before = await statements(database)
    ends = {
        "execution.cancelled": run.ended("execution.cancelled"),
        "stage.closed": run.closed(),
        "command.failed": run.command("a/1/0", "command.failed"),
    }[ending]
    behind = [
        run.claimed("a/1/0", token())
        if ending == "command.failed"
        else joined(
            each.frame(frame, "frame.committed", each.frame_fence(frame, 1, HELD)),
            each.dispatched(following, token(), index=1),
        )
        for each in (run, other)
    ]
    if ending == "command.failed":
        behind[1] = other.claimed("a/1/0", token())
    answers = await asyncio.gather(*map(ledger.transact, [ends, *behind]), return_exceptions=True)
    assert await statements(database) == before + 1
    assert [type(answer) for answer in answers] == [tuple, LeaseLost, tuple]
    left = {row[0] for row in await rows(database, "frame", "execution_id")}
    assert left == ({run.execution_id, other.execution_id} if ending == "command.failed" else {other.execution_id})


async def test_a_frame_of_a_stage_that_is_closed_has_no_lease(ledger: PostgresLedger, database: Database) -> None:
    run = await Driven().begin(ledger, stage=True)
    frame = IDS.mint()
    await ledger.transact(run.closed())
    await ledger.transact(run.dispatched(frame, HELD))
    assert await rows(database, "frame") == []
    with pytest.raises(LeaseLost):
        await ledger.transact(*commits(run, frame, 1))


async def test_a_repeated_change_gets_the_first_answer(
    ledger: PostgresLedger, database: Database, owner_url: str
) -> None:
    """INV-32, INV-04: the same event ids, as after a lost connection, whether keys, versions or leases would refuse them."""
    run = await Driven().begin(ledger, "a/1/0", stage=True)
    frame, following, held = IDS.mint(), IDS.mint(), token()
    versioned = run.issued("b/1/0")
    changes = [
        Transition((versioned.appends[0]._replace(expected_version=2),)),
        run.claimed("a/1/0", held),
        run.dispatched(frame, HELD),
        joined(
            run.frame(frame, "frame.committed", run.frame_fence(frame, 1, HELD)),
            run.dispatched(following, token(), index=1),
        ),
        joined(run.command("a/1/0", "command.completed", run.fence("a/1/0", 1, held)), run.closed()),
    ]
    first = [await ledger.transact(change) for change in changes]
    stored, head = await everything_stored(database), await ledger.head()
    async with other_process(owner_url) as other:
        again = [await other.transact(change) for change in changes]
        together = await asyncio.gather(*map(other.transact, changes))
    for answers in (again, together):
        assert [[(a.first_position, a.event_ids) for a in each] for each in answers] == [
            [(a.first_position, a.event_ids) for a in each] for each in first
        ]
    assert await everything_stored(database) == stored
    assert await ledger.head() == head


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


@pytest.mark.parametrize("kind", sorted(ENDING))
async def test_an_end_leaves_no_row_of_its_execution(ledger: PostgresLedger, database: Database, kind: str) -> None:
    """INV-30."""
    run, other = [await Driven().begin(ledger, "a/1/0", "a/1/1", stage=True) for _ in range(2)]
    for each in (run, other):
        await ledger.transact(each.dispatched(IDS.mint(), token()))
    await ledger.transact(run.ended(kind))
    for table in WORK_TABLES:
        assert {row[0] for row in await rows(database, table, "execution_id")} == {other.execution_id}, table


async def test_a_closed_stage_takes_its_frames_along_and_no_others(ledger: PostgresLedger, database: Database) -> None:
    run = await Driven().begin(ledger, stage=True)
    await ledger.transact(run.dispatched(IDS.mint(), token()))
    closing, run.stage_id = run.closed(), IDS.mint()
    await ledger.transact(run.opened())
    await ledger.transact(run.dispatched(IDS.mint(), token()))
    await ledger.transact(closing)
    assert await rows(database, "stage", "stage_id") == [(run.stage_id,)]
    assert await rows(database, "frame", "stage_id") == [(run.stage_id,)]


async def test_counters_of_a_stage_add_up_under_concurrency(
    ledger: PostgresLedger, database: Database, owner_url: str
) -> None:
    run = await Driven().begin(ledger, stage=True)

    async def lane(through: PostgresLedger, number: int) -> None:
        for turn in range(8):
            frame, held = IDS.mint(), token()
            await through.transact(run.dispatched(frame, held, index=number * 8 + turn))
            fence = run.frame_fence(frame, 1, held)
            if turn == 0:
                await through.transact(run.frame(frame, "frame.failed", fence))
            else:
                meta = {"failed_count": 3, "swallowed": 2}
                context = {"set": {f"lane{number}": turn}}
                await through.transact(run.frame(frame, "frame.committed", fence, meta=meta, context=context))

    async with other_process(owner_url) as second, other_process(owner_url) as third:
        ledgers = (ledger, second, third)
        await asyncio.gather(*(lane(ledgers[number % 3], number) for number in range(12)))
    columns = "frames_minted, frames_open, frames_failed, rows_done, rows_failed, errors, next_index"
    assert await rows(database, "stage", columns) == [(96, 0, 12, 84 * 7, 84 * 3 + 120, 168, 960)]
    async with database.transaction(SCOPE) as connection:
        assert await connection.fetchval("SELECT count(*) FROM noetl.stage, jsonb_each(ctx) WHERE value = '7'") == 12


async def test_claims_heartbeats_commits_and_cancels_never_deadlock(
    ledger: PostgresLedger, database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes work on the same executions while these fail, end and are cancelled."""
    monkeypatch.setattr("noetl.ledger.committer.AGAIN", ())  # a deadlock must show instead of being tried again
    names = [f"s/1/{number}" for number in range(6)]
    engine = Engine(database, ledger, MemoryPayloadStore(), IDS.mint, IDS.mint_many, "tests")
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
    monkeypatch.setattr("noetl.ledger.committer.AGAIN", ())
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
    engine = Engine(database, ledger, MemoryPayloadStore(), IDS.mint, IDS.mint_many, "tests")
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


async def test_equal_ids_in_two_organizations_are_two_leases(ledger: PostgresLedger, database: Database) -> None:
    """INV-22: neither a fence nor a change nor an end reaches beyond its organization."""
    mine = await Driven().begin(ledger, "a/1/0", stage=True)
    theirs = Driven(NEIGHBOUR, mine.execution_id)
    theirs.stage_id, frame = mine.stage_id, IDS.mint()
    await theirs.begin(ledger, "a/1/0", stage=True)
    for run in (mine, theirs):
        await ledger.transact(run.dispatched(frame, HELD if run is mine else STALE))
    with pytest.raises(LeaseLost):
        await ledger.transact(theirs.frame(frame, "frame.committed", theirs.frame_fence(frame, 1, HELD)))
    await ledger.transact(theirs.claimed("a/1/0", HELD))
    assert await rows(database, "command", "status") == [("PENDING",)]
    await ledger.transact(theirs.ended())
    for table in WORK_TABLES:
        assert len(await rows(database, table)) == 1, table
        assert await rows(database, table, scope=NEIGHBOUR) == [], table


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


async def test_a_plain_append_changes_no_row(ledger: PostgresLedger, database: Database) -> None:
    drafts = Drafts(SCOPE, IDS.mint)
    draft = drafts.command(IDS.mint(), "c1")
    await ledger.append(draft.stream, [draft])
    assert await rows(database, "command") == []
    assert len(await everything(ledger)) == 1


async def test_one_change_that_the_database_cannot_take_does_not_fail_its_statement(ledger: PostgresLedger) -> None:
    runs = [await Driven().begin(ledger) for _ in range(3)]
    bad = runs[1].issued("a/1/0", worker="w", lease_token="no uuid")
    tries = [runs[0].issued("a/1/0"), bad, runs[2].issued("a/1/0")]
    answers = await asyncio.gather(*map(ledger.transact, tries), return_exceptions=True)
    assert [isinstance(answer, NoetlError) for answer in answers] == [False, True, False]


async def test_an_append_of_a_change_keeps_its_expected_version(ledger: PostgresLedger) -> None:
    """INV-28."""
    run = await Driven().begin(ledger)
    issued = run.issued("a/1/0").appends[0]
    with pytest.raises(VersionConflict, match="is at version 1, not at 4"):
        await ledger.transact(Transition((Append(issued.stream, issued.drafts, 4),)))
