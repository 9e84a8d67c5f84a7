"""Workers that wait for a command get what is issued meanwhile, each in its turn and no more than they want."""

from __future__ import annotations

import asyncio

import pytest

from noetl.engine.catalog.playbooks import Entry
from noetl.engine.dispatch.assignment import Waiters
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant, StepContext
from noetl.engine.dispatch.stores import postgres_stores
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope, execution_stream
from noetl.testing.samples.drafts import PRODUCER

SCOPE = Scope("acme", "ops")
OTHER = Scope("acme", "lab")
IDS = SnowflakeGenerator(5, lambda: 1_800_000_000_000)
STEP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: one, path: tests/one}
workflow:
  - step: only
    tool: {kind: noop, input: {some: work}}
"""


def grant(number: int) -> CommandGrant:
    return CommandGrant(
        execution_id=number, command_id="only/1/0", step="only", attempt=1, token="t", lease_seconds=30.0,
        catalog_id="c", issued_event_id=1, context=StepContext(workload={}, ctx={}, results={}),
    )  # fmt: skip


async def test_each_gets_its_turn_and_no_more_than_it_wants() -> None:
    waiters = Waiters()
    with waiters.waiting(SCOPE, "a", 2) as first, waiters.waiting(SCOPE, "b", 1) as second:
        got = []
        for _ in range(4):
            waiter = waiters.next(SCOPE)
            got.append(waiter)
            if waiter is not None:
                with waiter.promised():
                    pass
        assert got == [first, second, first, None]
    assert waiters.next(SCOPE) is None


async def test_a_slot_of_a_loop_goes_only_to_those_who_take_one() -> None:
    waiters = Waiters()
    with waiters.waiting(SCOPE, "a", 3, loops=0) as full, waiters.waiting(SCOPE, "b", 3, loops=1) as room:
        got = []
        for slot in (True, True, False):
            waiter = waiters.next(SCOPE, slot=slot)
            got.append(waiter)
            if waiter is not None:
                with waiter.promised(slot=slot):
                    pass
        assert got == [room, None, full]


async def test_a_command_of_another_organization_is_not_given() -> None:
    waiters = Waiters()
    with waiters.waiting(SCOPE, "a", 1):
        assert waiters.next(OTHER) is None


async def test_a_worker_waits_for_what_it_was_promised() -> None:
    waiters = Waiters()
    with waiters.waiting(SCOPE, "a", 2) as waiter:
        promise = waiter.promised()
        promise.__enter__()
        waiter.give(grant(1))
    asking = asyncio.create_task(waiter.granted())
    await asyncio.sleep(0)
    assert not asking.done()
    waiter.give(grant(2))
    promise.__exit__(None, None, None)
    assert [given.execution_id for given in await asking] == [1, 2]


@pytest.fixture
async def engine(database: Database, ledger: PostgresLedger) -> Engine:
    """An engine on the test's database that pushes nothing by itself."""
    return Engine(
        postgres_stores(database, ledger),
        ledger,
        MemoryPayloadStore(),
        IDS.mint,
        IDS.mint_many,
        PRODUCER,
        kinds=("noop",),
    )


async def registered(engine: Engine) -> Entry:
    return (await engine.catalog.register(SCOPE, STEP)).entry


async def waiting(engine: Engine, claim: asyncio.Task[list[CommandGrant]]) -> None:
    """Return once a claim has found nothing and waits."""
    while not engine.executions.waiters._waiting:
        assert not claim.done()
        await asyncio.sleep(0)


async def kinds_of(ledger: PostgresLedger, execution_id: int) -> list[str]:
    return [event.event_type async for event in ledger.read_execution(SCOPE, execution_id)]


async def test_a_command_is_claimed_for_a_waiting_worker_as_it_is_issued(
    engine: Engine, ledger: PostgresLedger, database: Database
) -> None:
    entry = await registered(engine)
    claim = asyncio.create_task(engine.dispatch(SCOPE).claim("w", 3, 60.0))
    await waiting(engine, claim)
    state = await engine.start(SCOPE, entry, requested_by="test")
    (given,) = await claim
    assert (given.execution_id, given.command_id, given.attempt) == (state.execution_id, "only/1/0", 1)
    assert (await kinds_of(ledger, state.execution_id))[-2:] == ["command.issued", "command.claimed"]
    async with database.transaction(SCOPE) as connection:
        row = await connection.fetchrow("SELECT status, attempt, worker, lease_token::text AS token FROM noetl.command")
    assert row is not None
    assert dict(row) == {"status": "CLAIMED", "attempt": 1, "worker": "w", "token": given.token}
    last = [event async for event in ledger.read(execution_stream(SCOPE, state.execution_id))][-1]
    assert last.event_type == "command.issued", "a lease is told in the stream of its command"


async def test_what_a_stopped_worker_was_given_is_given_back(engine: Engine, ledger: PostgresLedger) -> None:
    entry = await registered(engine)
    claim = asyncio.create_task(engine.dispatch(SCOPE).claim("w", 1, 60.0))
    await waiting(engine, claim)
    waiter = engine.executions.waiters._waiting[SCOPE][0]
    starting = asyncio.create_task(engine.start(SCOPE, entry, requested_by="test"))
    while not waiter._promised:
        assert not starting.done()
        await asyncio.sleep(0)
    claim.cancel()
    state = await starting
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert (await kinds_of(ledger, state.execution_id))[-2:] == ["command.claimed", "command.returned"]
    (again,) = await engine.dispatch(SCOPE).claim("v", 1, 0.0)
    assert again.attempt == 2


async def test_the_end_of_an_execution_is_given_to_nobody(engine: Engine) -> None:
    entry = await registered(engine)
    dispatch = engine.dispatch(SCOPE)
    state = await engine.start(SCOPE, entry, requested_by="test")
    claim = asyncio.create_task(dispatch.claim("w", 2, 60.0))
    (given,) = await claim
    idle = asyncio.create_task(dispatch.claim("w", 2, 60.0))
    await waiting(engine, idle)
    await engine.cancel(SCOPE, state.execution_id, reason="test", by="test")
    assert not idle.done()
    assert given.execution_id == state.execution_id
    idle.cancel()
    await asyncio.gather(idle, return_exceptions=True)
