"""Many calls in one transaction, and claims that last only when told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.postgres import sql
from noetl.engine.tools.postgres.batch import run_batch
from noetl.engine.tools.postgres.claim import ClaimFailed, open_claim
from noetl.engine.tools.programs.source import load_script

pytestmark = pytest.mark.service

_CLAIM = (
    "UPDATE work SET state = 'claimed' WHERE id IN "
    "(SELECT id FROM work WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED) RETURNING id"
)


@pytest.fixture
async def caller(empty_url: str) -> AsyncIterator[Caller]:
    credential = Credential("pg", "postgres", {"dsn": empty_url})
    async with Caller("postgres", "pg", {"pg": credential}) as caller:
        yield caller


@pytest.fixture
async def observer(empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_url)
    await connection.execute(
        "CREATE TABLE work(id int PRIMARY KEY, state text DEFAULT 'new'); INSERT INTO work SELECT generate_series(1, 5);"
        "CREATE TABLE saved(id int PRIMARY KEY, work int REFERENCES work DEFERRABLE INITIALLY DEFERRED)"
    )
    yield connection
    await connection.close()


async def ids(observer: asyncpg.Connection, table: str = "saved") -> list[int]:
    return [row["id"] for row in await observer.fetch(f"SELECT id FROM {table} ORDER BY id")]


async def test_a_call_without_one_of_its_values_fails_alone(caller: Caller, observer: asyncpg.Connection) -> None:
    command = "INSERT INTO saved VALUES (:id, :work)"
    given = [{"id": 1, "work": 1}, {"id": 2}, {"id": 3, "work": 1}]
    outcomes = await run_batch([caller.call(command=command, params=one) for one in given], caller.resources)

    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].error is not None
    assert "has no value for work" in outcomes[1].error.message
    assert await ids(observer) == [1, 3]


async def test_a_batch_is_one_transaction(caller: Caller, observer: asyncpg.Connection) -> None:
    calls = [
        caller.call(
            command=f"INSERT INTO saved VALUES ({number}, 1) -- it's one\n; UPDATE work SET state = 'x' WHERE id = 1;"
        )
        for number in range(30)
    ]

    outcomes = await run_batch(calls, caller.resources)

    assert [outcome.status for outcome in outcomes] == ["ok"] * 30
    assert [outcome.data["row_count"] for outcome in outcomes] == [None] * 29 + [1]
    assert await observer.fetchval("SELECT count(DISTINCT xmin::text) FROM saved") == 1


async def test_many_values_of_one_command_are_one_transaction_too(caller: Caller, observer: asyncpg.Connection) -> None:
    await observer.execute("CREATE TABLE page(id int PRIMARY KEY, body text)")
    command = "INSERT INTO page VALUES ($1, $2)"
    calls = [caller.call(command=command, params=[number, "x" * 20_000]) for number in range(200)]
    assert [outcome.status for outcome in await run_batch(calls, caller.resources)] == ["ok"] * 200
    assert await observer.fetchval("SELECT count(DISTINCT xmin::text) FROM page") == 1

    again = [caller.call(command=command, params=[number, "y"]) for number in (300, 7, 301)]
    assert [outcome.status for outcome in await run_batch(again, caller.resources)] == ["ok", "error", "ok"]
    assert (await ids(observer, "page"))[-3:] == [199, 300, 301]


async def test_one_bad_call_fails_alone(caller: Caller, observer: asyncpg.Connection) -> None:
    calls = [caller.call(command=f"INSERT INTO saved VALUES ({number}, 1)") for number in (1, 2, 2, 3)]
    calls.insert(1, caller.call(command="INSERT INTO nowhere VALUES (1)"))
    calls.insert(1, caller.call(command="  "))

    outcomes = await run_batch(calls, caller.resources)

    kinds = [outcome.error and outcome.error.kind for outcome in outcomes]
    assert kinds == [None, "schema", "schema", None, "db_constraint", None]
    assert [outcome.data["row_count"] for outcome in outcomes] == [1, 0, 0, 1, 0, 1]
    assert await ids(observer) == [1, 2, 3]


async def test_a_call_that_breaks_a_constraint_checked_at_the_end_fails_alone(
    caller: Caller, observer: asyncpg.Connection
) -> None:
    calls = [caller.call(command=f"INSERT INTO saved VALUES ({number}, {number})") for number in (1, 99, 2)]

    outcomes = await run_batch(calls, caller.resources)

    assert [outcome.error and outcome.error.pg_code for outcome in outcomes] == [None, "23503", None]
    assert await ids(observer) == [1, 2]


async def test_rows_parameters_and_transaction_control_mix_in_a_batch(
    caller: Caller, observer: asyncpg.Connection
) -> None:
    calls = [
        caller.call(command="INSERT INTO saved VALUES (1, 1)"),
        caller.call(command="INSERT INTO saved VALUES ($1, $2) RETURNING id", params=[2, 1]),
        caller.call(command="INSERT INTO saved VALUES (3, 1); SELECT count(*) AS n FROM saved"),
        caller.call(command="BEGIN; INSERT INTO saved VALUES (4, 1); COMMIT"),
        caller.call(command="INSERT INTO saved VALUES (:id, 1)", params={}),
    ]

    outcomes = await run_batch(calls, caller.resources)

    assert [outcome.status for outcome in outcomes] == ["ok", "ok", "ok", "ok", "error"]
    assert outcomes[1].data["rows"] == [{"id": 2}]
    assert outcomes[2].data["rows"] == [{"n": 4}]
    assert await ids(observer) == [1, 2, 3, 4]


async def test_a_long_batch_is_still_one_transaction(caller: Caller, observer: asyncpg.Connection) -> None:
    await observer.execute("CREATE TABLE long(id int PRIMARY KEY, text text)")
    text = "x" * 300_000
    calls = [caller.call(command=f"INSERT INTO long VALUES ({number}, '{text}')") for number in range(8)]

    outcomes = await run_batch(calls, caller.resources)

    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert await observer.fetchval("SELECT count(DISTINCT xmin::text) FROM long") == 1


async def test_a_lost_connection_fails_all_calls_for_another_try(caller: Caller, observer: asyncpg.Connection) -> None:
    calls = [
        caller.call(command="INSERT INTO saved VALUES (1, 1)"),
        caller.call(command="SELECT pg_terminate_backend(pg_backend_pid())"),
        caller.call(command="INSERT INTO saved VALUES (2, 1)"),
    ]

    outcomes = await run_batch(calls, caller.resources)

    assert [(outcome.error.kind, outcome.error.retryable) for outcome in outcomes if outcome.error] == [
        ("db_connection", True)
    ] * 3
    assert await ids(observer) == []


async def test_a_claim_lasts_only_when_committed(caller: Caller, observer: asyncpg.Connection) -> None:
    async with open_claim(caller.call(command=_CLAIM)) as claim:
        assert [row["id"] for row in await claim.rows()] == [1, 2]
        async with open_claim(caller.call(command=_CLAIM)) as other:
            assert [row["id"] for row in await other.rows()] == [3, 4]
        await claim.commit()

    assert claim.committed
    assert not other.committed
    assert await observer.fetchval("SELECT array_agg(id ORDER BY id) FROM work WHERE state = 'claimed'") == [1, 2]


async def test_a_changed_table_is_no_problem_for_a_claim_made_before(
    caller: Caller, observer: asyncpg.Connection
) -> None:
    command = "SELECT * FROM work ORDER BY id LIMIT 1 FOR UPDATE"
    for _ in range(3):
        async with open_claim(caller.call(command=command, pool=1)) as claim:
            await claim.rows()
    await observer.execute("ALTER TABLE work ADD more int DEFAULT 7")

    async with open_claim(caller.call(command=command, pool=1)) as claim:
        assert await claim.rows() == [{"id": 1, "state": "new", "more": 7}]


async def test_a_claim_cancelled_while_it_waits_is_rolled_back(caller: Caller, observer: asyncpg.Connection) -> None:
    async def wait() -> None:
        async with open_claim(
            caller.call(command="UPDATE work SET state = 'held' RETURNING pg_sleep(100)::text")
        ) as claim:
            await claim.rows()

    task = asyncio.create_task(wait())
    sleeping = "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')"
    waiting = f"DO $$ BEGIN LOOP EXIT WHEN {sleeping} = %s; PERFORM pg_stat_clear_snapshot(); END LOOP; END $$"
    await observer.execute(waiting % 1, timeout=30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await observer.execute(waiting % 0, timeout=30)
    assert (
        await observer.fetchval("SELECT count(*) FROM (SELECT FROM work WHERE state = 'new' FOR UPDATE SKIP LOCKED) x")
        == 5
    )


async def test_a_cancelled_claim_is_rolled_back(caller: Caller, observer: asyncpg.Connection) -> None:
    claimed = asyncio.Event()

    async def hold() -> None:
        async with open_claim(caller.call(command=f"SET LOCAL work_mem = '4MB'; {_CLAIM}")) as claim:
            await claim.rows()
            claimed.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await claimed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await observer.fetchval("SELECT count(*) FROM work WHERE state = 'claimed'") == 0
    assert await observer.fetchval("SELECT count(*) FROM (SELECT FROM work FOR UPDATE SKIP LOCKED) AS free") == 5


@pytest.mark.parametrize("command", ["SELECT * FROM nowhere", "BEGIN; SELECT 1", "UPDATE work SET state = 'x'", ""])
async def test_a_claim_that_cannot_be_made_says_why(caller: Caller, observer: asyncpg.Connection, command: str) -> None:
    with pytest.raises(ClaimFailed) as caught:
        async with open_claim(caller.call(command=command)) as claim:
            await claim.rows()

    assert caught.value.problem.kind == "schema"
    assert await observer.fetchval("SELECT count(*) FROM work WHERE state = 'new'") == 5


async def test_a_batch_reads_each_script_once(
    caller: Caller, observer: asyncpg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "save.sql").write_text("INSERT INTO saved VALUES (:id, 1)")
    read = list[Any]()

    async def loading(script: Any, call: Call) -> str:
        read.append(script)
        return await load_script(script, call)

    monkeypatch.setattr(sql, "load_script", loading)
    scripts = [str(tmp_path / "save.sql")] * 2 + ["/no/where.sql"]
    calls = [caller.call(script=script, params={"id": at}) for at, script in enumerate(scripts, 1)]
    outcomes = await run_batch(calls, caller.resources)

    assert [outcome.status for outcome in outcomes] == ["ok", "ok", "error"]
    assert outcomes[2].error is not None
    assert outcomes[2].error.kind == "not_found"
    assert await ids(observer) == [1, 2]
    assert read == scripts[1:]
