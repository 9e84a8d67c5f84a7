"""What the batch reader gives is what History gives, whatever the options; scope is never left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import pytest
from pyspark.sql import datasource as spark
from tests.integration.spark.source.read_without_spark import BOOKS, CARE, MINT, events_in, planned, read

from noetl.errors import Conflict, Denied, InputError, Unavailable
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.event import Event, time_text
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.source import statement
from noetl.spark.source.batches import Reading, read_batches
from noetl.spark.source.columns import ARROW_SCHEMA
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.ranges import Range
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

Options = Callable[..., dict[str, str]]
Runs = dict[Scope, list[int]]


def by_place(events: list[Event]) -> list[Event]:
    """Return events in the order of shards and positions."""
    return sorted(events, key=lambda event: (event.shard, event.position))


async def test_every_event_is_read_as_history_reads_it_and_no_other(
    database: Database, ledger: PostgresLedger, runs: Runs, options: Options
) -> None:
    drafts = Drafts(CARE, MINT)
    noted = drafts.business(
        "patient/7",
        runs[CARE][0],
        payload_ref=drafts.payload(),
        current_item={"é": [1, 2.5, None]},
        error="it broke",
        result={"text": 'a "quoted" \\ word', "rows": 3},
    )
    await ledger.append(noted.stream, [noted])
    history = History(database, ledger, MemoryPayloadStore())
    for scope in (CARE, BOOKS, None):
        expected = await everything(history, scope)
        assert await asyncio.to_thread(read, options(scope)) == expected
        assert await asyncio.to_thread(read, options(scope, partition_events="7")) == expected
    _, tasks = planned(options(partition_events="7"))
    assert max(sum(place.size for place in task.value) for task in tasks) == 7


async def test_options_leave_events_out(ledger: PostgresLedger, runs: Runs, options: Options) -> None:
    all_of_it = await everything(ledger, CARE)
    execution = runs[CARE][1]
    assert by_place(read(options(execution=str(execution)))) == [
        event for event in all_of_it if event.execution_id == execution
    ]
    assert read(options(types="frame.*,loop.done")) == [
        event for event in all_of_it if event.event_type.startswith("frame.") or event.event_type == "loop.done"
    ]
    times = sorted(event.event_time for event in all_of_it)
    since, until = times[20], times[40]
    assert read(options(since=time_text(since), until=time_text(until))) == [
        event for event in all_of_it if since <= event.event_time < until
    ]
    shard = all_of_it[0].shard
    assert read(options(shards=str(shard))) == [event for event in all_of_it if event.shard == shard]
    head = await ledger.head()
    half = Mark([position // 2 for position in head.positions])
    first, second = read(options(upto=half.token())), read(options(after=half.token()))
    assert by_place(first + second) == all_of_it
    assert all(event.position <= half.positions[event.shard] for event in first)
    assert read(options(after=half.token(), upto=half.token())) == []


async def test_nothing_of_another_tenant_is_read_whatever_is_asked(
    owner_url: str, runs: Runs, options: Options, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-84."""
    foreign = runs[BOOKS][0]
    assert read(options(execution=str(foreign))) == []
    assert read(options(), [spark.EqualTo(("execution_id",), foreign)]) == []
    assert read(options(), [spark.EqualTo(("tenant_id",), BOOKS.tenant_id)]) == []
    shard = next(event.shard for event in await everything(ledger, BOOKS))
    head = (await ledger.head()).positions[shard]
    assert all(
        event.stream.scope == CARE for batch in read_batches(options(), shard, 1, head) for event in events_in(batch)
    )
    own = await everything(ledger, CARE)
    # A login that is the owner's, and one that is each role's: both take the role before anything is read.
    assert read({**options(), "as_roles": "false"}) == own
    given = options()
    for forgotten in ("tenant", "organization"):
        with pytest.raises(InputError, match=f"{forgotten}: missing"):
            read({name: text for name, text in given.items() if name != forgotten})
    with pytest.raises(InputError, match="neither tenant nor organization"):
        read({**given, "every_tenant": "true"})
    # The predicate alone would do, and so would the database alone: here a statement has forgotten to ask whose events.
    with monkeypatch.context() as forgetful:
        forgetful.setattr(statement, "scoped", lambda _: [])
        assert read(options()) == own
    # And here the database sees another organization bound.
    connection = await asyncpg.connect(owner_url, user="noetl_runtime")
    await connection.execute("SELECT set_config('noetl.tenant', 'zeta', false)")
    assert await connection.fetchval("SELECT count(*) FROM noetl.event WHERE tenant_id = 'acme'") == 0
    await connection.close()


async def test_a_login_without_the_projectors_role_does_not_read_every_tenant(
    owner_url: str, runs: Runs, options: Options
) -> None:
    given = {**options(None), "as_roles": "false", "url": owner_url.replace("noetl_owner", "noetl_runtime")}
    with pytest.raises(Denied, match="noetl_projector"):
        read(given)


async def test_what_is_misspelt_or_makes_no_sense_is_told_all_at_once(options: Options) -> None:
    given = options(excution="5", since="yesterday", shards="77", after="m1.nothing", partition_events="0", types="")
    with pytest.raises(InputError) as refused:
        SourceOptions.parse(given)
    for name in ("excution", "since", "shards", "after", "partition_events"):
        assert f"{name}:" in refused.value.message
    assert given["url"] not in refused.value.message
    assert given["url"] not in repr(SourceOptions.parse(options()))


async def test_a_mark_the_ledger_has_not_come_to_is_refused(
    ledger: PostgresLedger, runs: Runs, options: Options
) -> None:
    ahead = (await ledger.head()).with_position(3, 1 << 40).token()
    for name in ("after", "upto"):
        with pytest.raises(Conflict, match=rf"option {name} is at position {1 << 40} of shard 3"):
            read(options(**{name: ahead}))


async def test_columns_that_are_not_asked_for_are_not_fetched(runs: Runs, options: Options) -> None:
    parsed = SourceOptions.parse(options())
    columns = ("position", "event_type", "ingest_time")
    batches = [
        batch for shard in range(16) for batch in Reading(parsed, columns=columns).batches([Range(shard, 1, 1 << 40)])
    ]
    assert sum(batch.num_rows for batch in batches) == len(read(options()))
    assert {batch.schema for batch in batches} == {ARROW_SCHEMA.empty_table().select(columns).schema}


async def test_the_password_is_in_no_error(unused_tcp_port: int, options: Options) -> None:
    """INV-85."""
    url = f"postgresql://noetl:hunter%2B2@127.0.0.1:{unused_tcp_port}/noetl?sslmode=disable"
    with pytest.raises(Unavailable) as refused:
        read({**options(), "url": url})
    told = f"{refused.value!r} {refused.value} {refused.value.__cause__} {refused.value.__context__}"
    assert "hunter" not in told
    assert url not in told
