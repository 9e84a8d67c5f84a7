"""The streaming reader: nothing skipped and nothing twice, whoever commits when; batches have bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.integration.spark.source.read_without_spark import CARE, MINT, Query

from noetl.errors import Conflict
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope, execution_stream
from noetl.spark.source.ranges import admitted
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

Options = Callable[..., dict[str, str]]


def places(events: list[Event]) -> list[tuple[int, int]]:
    return sorted((event.shard, event.position) for event in events)


@pytest.fixture
async def patient(owner_url: str) -> AsyncIterator[PostgresLedger]:
    """A ledger whose writers may take their time, however busy the machine is."""
    database = Database(owner_url, as_roles=True, idle_in_transaction_seconds=300)
    ledger = PostgresLedger(database)
    yield ledger
    await ledger.close()
    await database.close()


async def test_open_transactions_hide_nothing_from_a_query_that_goes_on(
    patient: PostgresLedger, options: Options
) -> None:
    """INV-86: ids are minted early and committed late, and a query in between sees each event once."""
    drafts = Drafts(CARE, MINT)
    query = Query(options(batch_events="5"))
    seen: list[Event] = []

    async def taken() -> None:
        before = None
        while query.offset != before:
            before = query.offset
            seen.extend(await asyncio.to_thread(query.batch))

    runs = [MINT() for _ in range(24)]
    for round_number in range(3):
        async with AsyncExitStack() as slow:
            held: set[int] = set()
            for run in runs[round_number * 4 : round_number * 4 + 4]:
                shard = execution_stream(CARE, run).shard
                if shard not in held:  # a second writer of a shard would wait for the first
                    held.add(shard)
                    draft = drafts.execution(run, "step.entered", node_name="late")
                    decision = await slow.enter_async_context(patient.decision(CARE))
                    await decision.append(draft.stream, [draft])
            await taken()
            for run in runs:
                if execution_stream(CARE, run).shard not in held:
                    quick = [drafts.execution(run, "step.entered", node_name="quick") for _ in range(3)]
                    await patient.append(quick[0].stream, quick)
            await taken()
        # What was committed last has the oldest ids.
        await taken()
        if round_number == 1:
            query = Query(options(batch_events="5"), query.offset)
    assert [event.node_name for event in seen].count("late") >= 6
    assert places(seen) == places(await everything(patient, CARE))


async def test_a_batch_planned_again_holds_the_same_events(
    ledger: PostgresLedger, runs: dict[Scope, list[int]], options: Options
) -> None:
    query = Query(options())
    start = query.offset
    first = query.batch()
    end = query.offset
    more = Drafts(CARE, MINT).execution(runs[CARE][0], "step.entered", node_name="more")
    await ledger.append(more.stream, [more])
    assert query.between(start, end) == first
    assert [event.event_id for event in query.batch()] == [more.event_id]
    assert query.batch() == []


async def test_a_query_for_what_there_is_ends_there(
    ledger: PostgresLedger, runs: dict[Scope, list[int]], options: Options
) -> None:
    query = Query(options(batch_events="30"))
    there_is = await everything(ledger, CARE)
    query.prepare_to_end()
    more = Drafts(CARE, MINT).execution(runs[CARE][0], "step.entered", node_name="more")
    await ledger.append(more.stream, [more])
    seen = []
    while events := query.batch():
        assert len(events) <= 30
        seen += events
    assert places(seen) == places(there_is)
    whole = Query(options(batch_events="1"))
    assert len(whole.batch(ReadAllAvailable())) == len(there_is) + 1


async def test_a_query_lives_through_the_loss_of_its_connection_and_refuses_another_ledger(
    owner_url: str, ledger: PostgresLedger, runs: dict[Scope, list[int]], options: Options
) -> None:
    query = Query(options())
    query.batch()
    admin = await asyncpg.connect(owner_url, user="noetl_admin")
    cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'noetl_runtime' AND datname = current_database()"
    assert await admin.fetchval(f"SELECT count(*) FROM ({cut}) AS ended") >= 1
    await admin.close()
    assert query.batch() == []
    ahead = {"mark": (await ledger.head()).with_position(0, 1 << 40).token()}
    astray = Query(options(), ahead)
    with pytest.raises(Conflict, match="new checkpoint"):
        astray.batch()


@pytest.mark.parametrize(
    ("waiting", "most", "expected"),
    [
        ([0, 0, 0], 10, [0, 0, 0]),
        ([3, 100, 100], 30, [3, 13, 14]),
        ([100, 100, 100], 2, [1, 1, 0]),
        ([5, 5, 5], 100, [5, 5, 5]),
        ([1, 0, 1000], 10, [1, 0, 9]),
    ],
)
def test_a_batch_takes_an_equal_share_of_each_shard(waiting: list[int], most: int, expected: list[int]) -> None:
    end = admitted(range(3), Mark([7, 7, 7]), Mark([7 + size for size in waiting]), most)
    assert [position - 7 for position in end.positions] == expected
