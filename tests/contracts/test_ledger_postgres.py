"""What only the ledger in PostgreSQL promises: grouping, partitions, privileges, restarts and lost answers."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from noetl.errors import AlreadyRecorded, PayloadCollected, Unavailable, Unsupported, VersionConflict
from noetl.kernel.ledger.batch import APPEND_SQL, arguments, request
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.catalogue.rows import APPLIED_BY
from noetl.model.event import Draft
from noetl.model.ids import MAX_ID, SnowflakeGenerator, snowflake_at
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.contracts.ledger.event_lists import everything, read, read_execution
from noetl.testing.contracts.ledger.reads import taken
from noetl.testing.samples.drafts import Drafts
from noetl.testing.servers.postgres import FreshDatabases

pytestmark = pytest.mark.service

SCOPE = Scope("acme", "care")
IDS = SnowflakeGenerator(2, lambda: time.time_ns() // 1_000_000)


@pytest.fixture
def drafts() -> Drafts:
    return Drafts(SCOPE, IDS.mint)


async def test_64_concurrent_appends_need_few_transactions(
    ledger: PostgresLedger, database: Database, drafts: Drafts
) -> None:
    items = [drafts.loop_item(drafts.mint(), drafts.mint(), 0) for _ in range(64)]
    await asyncio.gather(*(ledger.append(item.stream, [item]) for item in items))
    async with database.transaction(SCOPE) as connection:
        events, transactions = await connection.fetchrow("SELECT count(*), count(DISTINCT xmin::text) FROM noetl.event")
    assert events == 64
    assert transactions <= 2


@pytest.mark.parametrize("days", [-700, 400, 8000])
async def test_a_missing_partition_is_made_on_demand(
    ledger: PostgresLedger, database: Database, drafts: Drafts, days: int
) -> None:
    moment = datetime.now(UTC) + timedelta(days=days)
    run = snowflake_at(moment)
    items = drafts.loop_items(run, drafts.mint(), 3)
    present = drafts.loop_item(drafts.mint(), drafts.mint(), 0)
    answers = await asyncio.gather(ledger.append(items[0].stream, items), ledger.append(present.stream, [present]))
    assert [answer.first_version for answer in answers] == [1, 1]
    async with database.transaction(SCOPE) as connection:
        where = await connection.fetchval(
            "SELECT DISTINCT tableoid::regclass::text FROM noetl.event WHERE execution_id = $1", run
        )
    assert where == f"noetl.event_{moment:%Y_%m}"


async def test_the_last_month_ids_can_name_has_a_partition_too(ledger: PostgresLedger, drafts: Drafts) -> None:
    draft = drafts.execution(MAX_ID)
    assert (await ledger.append(draft.stream, [draft])).first_version == 1


async def test_a_decision_in_a_month_without_partition_succeeds_the_second_time(
    ledger: PostgresLedger, drafts: Drafts
) -> None:
    draft = drafts.execution(snowflake_at(datetime(2031, 5, 5, tzinfo=UTC)))

    async def decide() -> None:
        async with ledger.decision(drafts.scope) as decision:
            await decision.append(draft.stream, [draft])

    with pytest.raises(Unavailable, match="try again"):
        await decide()
    await decide()
    assert [event.event_id async for event in ledger.read(draft.stream)] == [draft.event_id]


async def test_the_root_partition_takes_the_organizations_own_facts(
    ledger: PostgresLedger, database: Database, drafts: Drafts
) -> None:
    draft = drafts.business("catalog/playbooks", 12345)
    await ledger.append(draft.stream, [draft])
    async with database.transaction(SCOPE) as connection:
        assert await connection.fetchval("SELECT tableoid::regclass::text FROM noetl.event") == "noetl.event_root"


async def test_one_append_that_violates_an_index_does_not_fail_its_group(
    ledger: PostgresLedger, drafts: Drafts
) -> None:
    run, loop = drafts.mint(), drafts.mint()
    twice = [drafts.loop(run, loop, "loop.done") for _ in range(2)]
    others = [drafts.loop_item(drafts.mint(), drafts.mint(), 0) for _ in range(20)]
    tries = (ledger.append(draft.stream, [draft]) for draft in [*others[:10], *twice, *others[10:]])
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, BaseException)] == [11]
    assert isinstance(answers[11], AlreadyRecorded)
    events = await everything(ledger)
    assert len(events) == 21
    assert sum((await ledger.head()).positions) == 21


async def test_reading_goes_on_page_by_page(
    ledger: PostgresLedger, drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.kernel.ledger.postgres.ledger.PAGE_EVENTS", 3)
    run, loop = drafts.mint(), drafts.mint()
    items = drafts.loop_items(run, loop, 9)
    await ledger.append(items[0].stream, items)
    expected = [item.event_id for item in items]
    assert [event.event_id for event in await read(ledger, items[0].stream)] == expected
    assert [event.event_id for event in await read_execution(ledger, SCOPE, run)] == expected
    assert [event.event_id for event in await read_execution(ledger, SCOPE, run, 2, 8)] == expected[1:8]
    assert [event.event_id for event in await everything(ledger)] == expected
    async with aclosing(ledger.subscribe(Mark.zero())) as batches:
        assert [event.event_id for event in await taken(batches, 9)] == expected


async def test_an_append_larger_than_a_group_is_written_whole(
    ledger: PostgresLedger, database: Database, drafts: Drafts
) -> None:
    large = drafts.loop_items(drafts.mint(), drafts.mint(), 1500)
    small = [drafts.loop_item(drafts.mint(), drafts.mint(), 0) for _ in range(3)]
    answers = await asyncio.gather(
        *(ledger.append(sent[0].stream, sent) for sent in ([small[0]], large, [small[1]], [small[2]]))
    )
    assert [answer.last_version for answer in answers] == [1, 1500, 1, 1]
    async with database.transaction(SCOPE) as connection:
        assert await connection.fetchval("SELECT count(DISTINCT xmin::text) FROM noetl.event") == 3


async def test_a_caller_that_gives_up_does_not_disturb_the_others(ledger: PostgresLedger, drafts: Drafts) -> None:
    items = [drafts.loop_item(drafts.mint(), drafts.mint(), 0) for _ in range(8)]
    tries = [asyncio.ensure_future(ledger.append(item.stream, [item])) for item in items]
    await asyncio.sleep(0)
    tries[3].cancel()
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, BaseException)] == [3]
    again = await ledger.append(items[3].stream, [items[3]])
    assert again.event_ids == (items[3].event_id,)
    assert len(await everything(ledger)) == 8


async def test_two_processes_that_share_streams_and_keys_neither_deadlock_nor_leave_gaps(
    owner_url: str, drafts: Drafts
) -> None:
    runs = [(drafts.mint(), drafts.mint()) for _ in range(12)]
    databases = [Database(owner_url, as_roles=True) for _ in range(3)]
    ledgers = [PostgresLedger(database) for database in databases]

    def shuffled(seed: int) -> list[Draft]:
        items = [
            drafts.loop_item(run, loop, index, idempotency_key=f"{run}/{index}")
            for index in range(8)
            for run, loop in runs
        ]
        random.Random(seed).shuffle(items)
        return items

    tries = [ledger.append(item.stream, [item]) for seed, ledger in enumerate(ledgers) for item in shuffled(seed)]
    answers = await asyncio.gather(*tries)
    assert sum(answer.repeated for answer in answers) == 2 * 96
    assert len({answer.event_ids for answer in answers}) == 96
    events = await everything(ledgers[0])
    assert len(events) == 96 == sum((await ledgers[1].head()).positions)
    for shard in {event.shard for event in events}:
        positions = [event.position for event in events if event.shard == shard]
        assert positions == list(range(1, len(positions) + 1))
    for ledger, database in zip(ledgers, databases, strict=True):
        await ledger.close()
        await database.close()


async def test_a_refused_append_leaves_no_head_of_a_stream_behind(
    ledger: PostgresLedger, database: Database, drafts: Drafts
) -> None:
    draft = drafts.execution(drafts.mint())
    with pytest.raises(VersionConflict):
        await ledger.append(draft.stream, [draft], expected_version=4)
    async with database.transaction(SCOPE) as connection:
        assert await connection.fetch("SELECT * FROM noetl.stream") == []


async def test_a_key_that_ran_out_is_free_again(database: Database, drafts: Drafts) -> None:
    ledger = PostgresLedger(database, key_ttl=timedelta(seconds=-1))
    draft = drafts.loop_item(drafts.mint(), drafts.mint(), 0, idempotency_key="k")
    await ledger.append(draft.stream, [draft])
    answer = await ledger.append(draft.stream, [drafts.again(draft, status="other")])
    assert (answer.first_version, answer.repeated) == (2, False)
    await ledger.close()


async def test_a_collected_payload_must_be_stored_again_first(
    ledger: PostgresLedger, database: Database, drafts: Drafts
) -> None:
    draft = drafts.loop_item(drafts.mint(), drafts.mint(), 0, payload_ref=drafts.payload("ab" * 32))
    in_fields = drafts.again(draft, payload_ref=None, fields_ref=drafts.payload("ab" * 32))
    async with database.transaction(SCOPE) as connection:
        await connection.execute("INSERT INTO noetl.payload_tombstone VALUES ('acme', 'care', $1)", "ab" * 32)
    for refused in (draft, in_fields):
        with pytest.raises(PayloadCollected):
            await ledger.append(draft.stream, [refused])
    async with database.transaction(SCOPE) as connection:
        await connection.execute("DELETE FROM noetl.payload_tombstone")
    assert (await ledger.append(draft.stream, [draft])).first_position == 1


FORBIDDEN = (
    "UPDATE noetl.event SET status = 'x'",
    "DELETE FROM noetl.event",
    "TRUNCATE noetl.event",
    "INSERT INTO noetl.event SELECT * FROM noetl.event",
    "UPDATE noetl.shard SET position = 0",
    "INSERT INTO noetl.shard (shard) VALUES (16)",
    "DELETE FROM noetl.shard",
    "UPDATE noetl.stream SET version = 0",
    "INSERT INTO noetl.stream (tenant_id, organization_id, stream_id, shard) VALUES ('acme', 'care', 'x', 1)",
    "DELETE FROM noetl.stream",
    "UPDATE noetl.idempotency_key SET key = 'x'",
    "DELETE FROM noetl.idempotency_key",
    "SELECT * FROM noetl.event_root",
    "DELETE FROM noetl.event_root",
    "ALTER TABLE noetl.event DISABLE ROW LEVEL SECURITY",
    "DROP TABLE noetl.event_root",
    "CREATE TABLE noetl.mine ()",
    "SELECT noetl.drop_event_partition('event_2024_01', '{}')",
    "SET ROLE noetl_owner",
    "SET ROLE noetl_projector",
    "SET SESSION AUTHORIZATION noetl_owner",
)


async def test_the_runtime_role_can_neither_change_nor_forge_the_ledger(
    ledger: PostgresLedger, database: Database, drafts: Drafts
) -> None:
    """INV-08."""
    draft = drafts.execution(drafts.mint())
    await ledger.append(draft.stream, [draft])
    for statement in FORBIDDEN:
        async with database.transaction(SCOPE) as connection:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_the_row_itself_refuses_more_than_64_kib(database: Database, drafts: Drafts) -> None:
    """INV-09."""
    draft = drafts.execution(drafts.mint(), meta={"x": 1})
    item = request(draft.stream, [draft], None, Checks())
    ((row,),) = (part.rows for part in item.parts)
    large = [value if value != '{"x":1}' else '{"x":"' + "y" * 65536 + '"}' for value in row]
    item.parts[0].rows[0] = tuple(large)
    async with database.transaction(SCOPE) as connection:
        with pytest.raises(asyncpg.CheckViolationError) as refused:
            await connection.fetch(APPEND_SQL, *arguments(SCOPE, [item], timedelta(days=1)))
    assert refused.value.constraint_name == "event_references_not_data"


@pytest.mark.parametrize("said", ["execution.dreamt", "business.", "command.issued ", ""])
async def test_the_row_itself_refuses_a_type_that_nobody_declared(
    database: Database, drafts: Drafts, said: str
) -> None:
    """INV-148."""
    draft = drafts.execution(drafts.mint())
    item = request(draft.stream, [draft], None, Checks())
    ((row,),) = (part.rows for part in item.parts)
    item.parts[0].rows[0] = type(row)(said if value == draft.event_type else value for value in row)
    async with database.transaction(SCOPE) as connection:
        with pytest.raises(asyncpg.CheckViolationError) as refused:
            await connection.fetch(APPEND_SQL, *arguments(SCOPE, [item], timedelta(days=1)))
    assert refused.value.constraint_name == "event_type_declared"


@pytest.mark.parametrize("said", sorted(set(APPLIED_BY.values())))
async def test_a_function_that_changes_rows_refuses_a_type_it_has_no_rule_for(owner_url: str, said: str) -> None:
    """INV-148."""
    arguments = {
        "apply_open_work": "'t', 'o', ARRAY['odd'], now(), ARRAY[e]",
        "apply_pipelines": "'t', 'o', ARRAY[f]",
        "apply_schedules": "'t', 'o', ARRAY[f]",
    }.get(said, "ARRAY[f]")
    owner = await asyncpg.connect(owner_url)
    try:
        with pytest.raises(asyncpg.CaseNotFoundError, match=r"no rule says what becomes of .* after odd"):
            await owner.execute(
                f"SELECT noetl.{said}({arguments}) FROM"
                ' jsonb_populate_record(NULL::noetl.new_event, \'{"event_type": "odd"}\') AS e,'
                ' jsonb_populate_record(NULL::noetl.event, \'{"event_type": "odd", "stream_id": "schedule/00000000-0000-0000-0000-000000000001"}\') AS f'
            )
    finally:
        await owner.close()


async def test_a_subscription_is_woken_by_notification_not_by_polling(database: Database, drafts: Drafts) -> None:
    ledger = PostgresLedger(database, poll_seconds=3600)
    async with aclosing(ledger.subscribe(await ledger.head())) as batches:
        for _ in range(3):
            waiting = asyncio.ensure_future(taken(batches, 1))
            draft = drafts.execution(drafts.mint())
            await ledger.append(draft.stream, [draft])
            assert [event.event_id for event in await waiting] == [draft.event_id]
    await ledger.close()


async def test_a_database_without_the_schema_says_how_to_make_it(
    fresh_databases: FreshDatabases, owner_url: str, drafts: Drafts
) -> None:
    await asyncio.to_thread(migrations.downgrade, owner_url, "base")
    database = Database(owner_url, as_roles=True)
    ledger = PostgresLedger(database)
    draft = drafts.execution(drafts.mint())
    with pytest.raises(Unsupported) as refused:
        await ledger.append(draft.stream, [draft])
    assert refused.value.hint == "run `noetl db migrate`"
    with pytest.raises(Unsupported):
        await read(ledger, draft.stream)
    await ledger.close()
    await database.close()


class TestDecisions:
    """Inline rows and events in one transaction; a tombstone serves as the inline row."""

    INLINE = "INSERT INTO noetl.payload_tombstone VALUES ('acme', 'care', 'inline')"

    async def inline_rows(self, database: Database) -> int:
        async with database.transaction(SCOPE) as connection:
            return int(await connection.fetchval("SELECT count(*) FROM noetl.payload_tombstone"))

    async def test_rows_and_events_stand_together(
        self, ledger: PostgresLedger, database: Database, drafts: Drafts
    ) -> None:
        draft = drafts.execution(drafts.mint())
        async with ledger.decision(SCOPE) as decision:
            await decision.connection.execute(self.INLINE)
            answer = await decision.append(draft.stream, [draft], expected_version=0)
        assert (answer.first_version, await self.inline_rows(database)) == (1, 1)
        assert len(await read(ledger, draft.stream)) == 1

    async def test_a_refused_append_undoes_the_rows(
        self, ledger: PostgresLedger, database: Database, drafts: Drafts
    ) -> None:
        draft = drafts.execution(drafts.mint())

        async def decide() -> None:
            async with ledger.decision(SCOPE) as decision:
                await decision.connection.execute(self.INLINE)
                await decision.append(draft.stream, [draft], expected_version=3)

        with pytest.raises(VersionConflict):
            await decide()
        assert await self.inline_rows(database) == 0

    async def test_an_error_after_the_append_undoes_the_events(
        self, ledger: PostgresLedger, database: Database, drafts: Drafts
    ) -> None:
        draft = drafts.execution(drafts.mint())

        async def decide() -> None:
            async with ledger.decision(SCOPE) as decision:
                await decision.append(draft.stream, [draft])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await decide()
        assert await read(ledger, draft.stream) == []
        assert (await ledger.append(draft.stream, [draft])).first_position == 1

    async def test_a_fact_recorded_by_a_racing_decision_is_recorded_already(
        self, ledger: PostgresLedger, drafts: Drafts
    ) -> None:
        run, loop = drafts.mint(), drafts.mint()
        first = drafts.loop(run, loop, "loop.done")
        elsewhere = SCOPE.stream(f"execution/{run}/elsewhere")
        second = drafts.draft(elsewhere, "loop.done", run, loop_id=loop, node_name="each", result=first.result)

        async def late() -> None:
            async with ledger.decision(SCOPE) as decision:
                started.set()
                await decision.append(elsewhere, [second])

        started = asyncio.Event()
        async with ledger.decision(SCOPE) as decision:
            await decision.append(first.stream, [first])
            racing = asyncio.ensure_future(late())
            await started.wait()
        with pytest.raises(AlreadyRecorded):
            await racing

    async def test_a_decision_wakes_subscribers(self, database: Database, drafts: Drafts) -> None:
        ledger = PostgresLedger(database, poll_seconds=3600)
        draft = drafts.execution(drafts.mint())
        async with aclosing(ledger.subscribe(await ledger.head())) as batches:
            waiting = asyncio.ensure_future(taken(batches, 1))
            async with ledger.decision(SCOPE) as decision:
                await decision.append(draft.stream, [draft])
            assert [event.event_id for event in await waiting] == [draft.event_id]
        await ledger.close()


class Cutter:
    """A socket before the server that can lose one answer: the statement was run, its result never arrives."""

    def __init__(self) -> None:
        self.armed = False
        self.cuts = 0

    async def carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await source.read(65536):
            if answers and self.armed:
                self.armed, self.cuts = False, self.cuts + 1
                break
            target.write(data)
            await target.drain()


@asynccontextmanager
async def cut_off(server_socket: str, directory: Path) -> AsyncIterator[Cutter]:
    """Run a cutter on a socket in the directory, in front of the server's."""
    cutter = Cutter()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(server_socket)
        writers.extend((writer, up_writer))
        both = [
            asyncio.ensure_future(cutter.carry(reader, up_writer, answers=False)),
            asyncio.ensure_future(cutter.carry(up_reader, writer, answers=True)),
        ]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        for each in (writer, up_writer):
            each.close()

    listener = await asyncio.start_unix_server(serve, str(directory / ".s.PGSQL.5432"))
    async with listener:
        yield cutter
        for each in writers:
            each.close()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    # A socket's path may have about a hundred bytes, which pytest's own directories easily exceed.
    directory = Path(tempfile.mkdtemp(prefix="noetl-"))
    yield directory
    shutil.rmtree(directory)


def _appends(drafts: Drafts) -> dict[str, tuple[list[Draft], int | None]]:
    run, loop = drafts.mint(), drafts.mint()
    return {
        "any version": (drafts.loop_items(run, loop, 2), None),
        "expected version": (drafts.loop_items(run, loop, 2), 0),
        "once-only fact": ([drafts.loop(run, loop, "loop.done")], None),
        "with keys": ([drafts.loop_item(run, loop, 0, idempotency_key="k")], 0),
    }


@pytest.mark.fault
@pytest.mark.parametrize("kind", ["any version", "expected version", "once-only fact", "with keys"])
async def test_an_append_whose_answer_is_lost_after_commit_is_written_once_and_answered(
    fresh_databases: FreshDatabases,
    postgres_server: EmbeddedServer,
    owner_url: str,
    short_directory: Path,
    drafts: Drafts,
    kind: str,
) -> None:
    status = postgres_server.status()
    name = owner_url.split("?")[0].rsplit("/", 1)[1]
    async with cut_off(f"{status.socket_dir}/.s.PGSQL.{status.port}", short_directory) as cutter:
        proof = owner_url.rpartition("&")[2]
        database = Database(f"postgresql:///{name}?host={short_directory}&port=5432&{proof}", as_roles=True)
        ledger = PostgresLedger(database)
        warm = drafts.execution(drafts.mint())
        await ledger.append(warm.stream, [warm])
        # The statement is prepared on this connection, so the next answer is that of the append.
        await ledger.append(warm.stream, [drafts.again(warm)])
        await ledger.close()
        sent, expected = _appends(drafts)[kind]
        cutter.armed = True
        answer = await ledger.append(sent[0].stream, sent, expected_version=expected)
        assert cutter.cuts == 1
        assert (answer.first_version, answer.last_version) == (1, len(sent))
        assert [event.event_id for event in await read(ledger, sent[0].stream)] == [draft.event_id for draft in sent]
        await ledger.close()
        await database.close()


@pytest.fixture
def own_server(short_directory: Path) -> Iterator[EmbeddedServer]:
    """A server that a test may stop, and that does not skip fsync."""
    short_directory.chmod(0o755)
    server = EmbeddedServer(short_directory / "home")
    server.start()
    yield server
    server.destroy()


@pytest.mark.fault
async def test_a_restarted_server_loses_nothing_acknowledged_and_the_ledger_goes_on(
    own_server: EmbeddedServer, drafts: Drafts
) -> None:
    await asyncio.to_thread(migrations.upgrade, own_server.url())
    database = Database(own_server.url(), as_roles=True)
    ledger = PostgresLedger(database)
    acknowledged: list[int] = []
    enough, stopping = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        while not stopping.is_set():
            items = drafts.loop_items(drafts.mint(), drafts.mint(), 2)
            answer = await ledger.append(items[0].stream, items)
            acknowledged.extend(answer.event_ids)
            if len(acknowledged) >= 200:
                enough.set()

    writers = [asyncio.ensure_future(write()) for _ in range(8)]
    await enough.wait()
    await asyncio.to_thread(own_server.stop)
    before = len(acknowledged)
    with pytest.raises(Unavailable):
        await ledger.head()
    await asyncio.to_thread(own_server.start)
    enough.clear()
    await enough.wait()
    stopping.set()
    await asyncio.gather(*writers)
    events = await everything(ledger)
    assert len(acknowledged) > before
    assert sorted(event.event_id for event in events) == sorted(acknowledged)
    assert sum((await ledger.head()).positions) == len(events)
    await ledger.close()
    await database.close()


@pytest.mark.fault
async def test_a_subscription_outlives_a_restart_of_the_server(own_server: EmbeddedServer, drafts: Drafts) -> None:
    await asyncio.to_thread(migrations.upgrade, own_server.url())
    database = Database(own_server.url(), as_roles=True)
    ledger = PostgresLedger(database, poll_seconds=0.1)
    before, after = (drafts.execution(drafts.mint()) for _ in range(2))
    async with aclosing(ledger.subscribe(Mark.zero())) as batches:
        await ledger.append(before.stream, [before])
        assert [event.event_id for event in await taken(batches, 1)] == [before.event_id]
        waiting = asyncio.ensure_future(taken(batches, 1))
        await asyncio.to_thread(own_server.stop)
        await asyncio.to_thread(own_server.start)
        await ledger.append(after.stream, [after])
        assert [event.event_id for event in await waiting] == [after.event_id]
    await ledger.close()
    await database.close()


async def test_a_lost_listening_connection_is_opened_again(
    database: Database, owner_url: str, fresh_databases: FreshDatabases, drafts: Drafts
) -> None:
    ledger = PostgresLedger(database, poll_seconds=3600)
    admin = await asyncpg.connect(fresh_databases.url(owner_url.split("?")[0].rsplit("/", 1)[1], "noetl_admin"))
    async with aclosing(ledger.subscribe(Mark.zero())) as batches:
        for number in range(3):
            waiting = asyncio.ensure_future(taken(batches, 1))
            draft = drafts.execution(drafts.mint())
            await ledger.append(draft.stream, [draft])
            assert [event.event_id for event in await waiting] == [draft.event_id]
            if number < 2:
                cut = await admin.fetch(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name = 'noetl_projector' AND query LIKE 'LISTEN%'"
                )
                assert len(cut) == 1
    await admin.close()
    await ledger.close()


async def test_a_subscription_that_never_reached_the_server_says_so(short_directory: Path) -> None:
    database = Database(f"postgresql:///nothing?host={short_directory}&port=5432", as_roles=True)
    with pytest.raises(Unavailable):
        await anext(PostgresLedger(database).subscribe(Mark.zero()))
    await database.close()
