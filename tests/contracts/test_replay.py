"""Replay over PostgreSQL: any point of an execution or an organization, its rows, its checksums, its errors."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.replay.as_of import HEAD, AsOf
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import Run, framed_run

pytestmark = pytest.mark.service

SCOPE = Scope("acme", "care")
IDS = SnowflakeGenerator(21, lambda: time.time_ns() // 1_000_000)


@business_object("invoice", events=["business.invoice.posted"])
def invoice(row: Row | None, event: Event) -> Row:
    row = row or {"total": 0}
    row["total"] += event.meta["amount"]
    return row


@pytest.fixture
def drafts() -> Drafts:
    return Drafts(SCOPE, IDS.mint)


@pytest.fixture
def found(database: Database, ledger: PostgresLedger) -> Projections:
    folds = FoldRegistry()
    return connect(database, ledger, folds=folds)


@pytest.fixture
async def run(ledger: PostgresLedger, drafts: Drafts) -> Run:
    return await framed_run(ledger, drafts)


async def test_the_head_of_an_execution_has_all_its_rows(found: Projections, run: Run) -> None:
    state = await found.replay.state(SCOPE, run.execution_id, projection="all")
    assert {name: len(rows) for name, rows in state.rows.items()} == {
        "execution": 1,
        "stage": 1,
        "frame": 3,
        "loop": 1,
        "fanout": 0,
    }
    assert state.rows["execution"][0]["row"]["status"] == "COMPLETED"
    assert state.position == run.positions[-1]
    assert state.events == len(run.drafts)


async def test_every_position_gives_the_state_of_that_prefix(found: Projections, run: Run) -> None:
    counted = []
    for position in run.positions:
        state = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(position=position))
        counted.append(state.rows["execution"][0]["row"]["events"])
    assert counted == list(range(1, len(run.drafts) + 1))


async def test_an_event_cuts_right_after_itself(found: Projections, run: Run) -> None:
    for number, draft in enumerate(run.drafts, 1):
        state = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(event_id=draft.event_id))
        assert state.rows["execution"][0]["row"]["last_event_id"] == str(draft.event_id)
        assert state.events == number


async def test_a_time_takes_everything_accepted_by_then(found: Projections, run: Run, ledger: PostgresLedger) -> None:
    events = [event async for event in ledger.read_execution(SCOPE, run.execution_id)]
    for event in events:
        state = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(time=event.ingest_time))
        assert state.position == max(other.position for other in events if other.ingest_time <= event.ingest_time)
    just_before = AsOf(time=events[3].ingest_time - timedelta(microseconds=1))
    assert (await found.replay.state(SCOPE, run.execution_id, as_of=just_before)).position == events[2].position


async def test_a_future_time_is_the_head_and_a_time_before_the_start_is_empty(found: Projections, run: Run) -> None:
    later = AsOf(time=datetime.now(UTC) + timedelta(days=1))
    assert (await found.replay.state(SCOPE, run.execution_id, as_of=later)).position == run.positions[-1]
    before = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(time=datetime(2025, 1, 1, tzinfo=UTC)))
    assert (before.position, before.events, before.rows) == (0, 0, {"execution": []})


async def test_a_mark_cuts_an_execution_at_its_shard(found: Projections, run: Run) -> None:
    mark = Mark.zero().with_position(run.shard, run.positions[4])
    state = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(mark=mark))
    assert state.position == run.positions[4]


async def test_an_unknown_execution_is_not_found(found: Projections, run: Run) -> None:
    with pytest.raises(NotFound, match="no execution 5 in acme/care"):
        await found.replay.state(SCOPE, 5)


async def test_an_event_of_another_execution_is_refused(
    found: Projections, run: Run, ledger: PostgresLedger, drafts: Drafts
) -> None:
    other = await framed_run(ledger, drafts, 1)
    with pytest.raises(InputError, match=f"execution {run.execution_id} has no event"):
        await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(event_id=other.drafts[0].event_id))


async def test_events_are_counted_within_their_execution(
    found: Projections, run: Run, ledger: PostgresLedger, drafts: Drafts
) -> None:
    """INV-166: what else a ledger holds does not change which state a number of events means."""
    other = await framed_run(ledger, drafts, 1)
    for number, position in enumerate(run.positions, 1):
        state = await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(number=number), use_snapshots=False)
        assert (state.position, state.events) == (position, number)
    with pytest.raises(InputError, match=f"has {len(run.positions)} events, and no event number"):
        await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(number=len(run.positions) + 1))
    with pytest.raises(NotFound, match="no execution 5"):
        await found.replay.state(SCOPE, 5, as_of=AsOf(number=1))
    with pytest.raises(InputError, match="lives in all of them"):
        await found.replay.state(SCOPE, as_of=AsOf(number=1))
    assert (await found.replay.state(SCOPE, other.execution_id, as_of=AsOf(number=1))).position == other.positions[0]


async def test_a_position_beyond_the_head_is_refused_and_the_head_named(found: Projections, run: Run) -> None:
    with pytest.raises(InputError, match=f"beyond the head of shard {run.shard}, which is {run.positions[-1]}"):
        await found.replay.state(SCOPE, run.execution_id, as_of=AsOf(position=run.positions[-1] + 1))


async def test_an_organization_is_replayed_as_of_marks_times_and_events(
    found: Projections, ledger: PostgresLedger, drafts: Drafts
) -> None:
    runs = [await framed_run(ledger, drafts, 1) for _ in range(6)]
    middle = await ledger.head()
    instant = [event async for event in ledger.read_execution(SCOPE, runs[-1].execution_id)][-1]
    runs += [await framed_run(ledger, drafts, 1) for _ in range(6)]
    whole = await found.replay.state(SCOPE, as_of=HEAD)
    assert len(whole.rows["execution"]) == 12
    for as_of in (AsOf(mark=middle), AsOf(time=instant.ingest_time), AsOf(event_id=instant.event_id)):
        state = await found.replay.state(SCOPE, as_of=as_of, projection="all")
        assert [row["id"] for row in state.rows["execution"]] == sorted(str(run.execution_id) for run in runs[:6])
        assert state.mark == middle


async def test_a_position_alone_does_not_cut_an_organization(found: Projections, run: Run) -> None:
    with pytest.raises(InputError, match="lives in all of them"):
        await found.replay.state(SCOPE, as_of=AsOf(position=1))


async def test_a_limit_bounds_rows_and_not_checksums(found: Projections, run: Run) -> None:
    whole = await found.replay.state(SCOPE, run.execution_id, projection="frame")
    some = await found.replay.state(SCOPE, run.execution_id, projection="frame", limit=2)
    assert some.rows["frame"] == whole.rows["frame"][:2]
    assert some.left_off == {"frame": 1}
    assert some.checksum == whole.checksum


async def test_one_projection_alone_has_the_checksum_it_has_among_all(found: Projections, run: Run) -> None:
    together = await found.replay.state(SCOPE, run.execution_id, projection="all")
    for name in ("execution", "stage", "frame", "loop", "fanout"):
        alone = await found.replay.state(SCOPE, run.execution_id, projection=name)
        assert alone.checksums == {name: together.checksums[name]}


async def test_payloads_of_rows_are_read_on_request(found: Projections, ledger: PostgresLedger, drafts: Drafts) -> None:
    run, stage, frame = drafts.mint(), drafts.mint(), drafts.mint()
    ref = await found.payloads.store(SCOPE, b'{"rows":[1,2]}', "application/json")
    missing = drafts.payload("cd" * 32)
    steps = [
        drafts.execution(run),
        drafts.frame(run, stage, frame, payload_ref=missing),
        drafts.frame(run, stage, frame, "frame.committed", payload_ref=ref),
    ]
    for step in steps:
        await ledger.append(step.stream, [step])
    state = await found.replay.state(SCOPE, run, projection="frame", resolve_payloads=True)
    assert state.payloads[ref.sha256] == {"media_type": "application/json", "bytes": 14, "value": {"rows": [1, 2]}}
    assert state.payloads[missing.sha256]["error"].startswith("payload_missing")


async def test_business_objects_of_outside_streams_belong_to_the_organization(
    database: Database, ledger: PostgresLedger, drafts: Drafts, run: Run
) -> None:
    folds = FoldRegistry()
    folds.add(invoice)
    found = connect(database, ledger, folds=folds)
    for amount in (5, 7):
        posted = drafts.business(
            "business_object/invoice/i1", run.execution_id, "business.invoice.posted", meta={"amount": amount}
        )
        await ledger.append(posted.stream, [posted])
    state = await found.replay.state(SCOPE, projection="business_object")
    assert [row["row"] for row in state.rows["business_object/invoice"]] == [{"total": 12}]
    own = await found.replay.state(SCOPE, run.execution_id, projection="business_object")
    assert own.rows == {"business_object/invoice": []}


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("head", HEAD),
        ("1200", AsOf(position=1200)),
        ("604876797720658689", AsOf(event_id=604876797720658689)),
        ("2026-05-16T12:34:56+02:00", AsOf(time=datetime(2026, 5, 16, 10, 34, 56, tzinfo=UTC))),
        (Mark.zero().token(), AsOf(mark=Mark.zero())),
    ],
)
def test_a_point_is_read_from_what_a_person_writes(text: str, point: AsOf) -> None:
    assert AsOf.parse(text) == point


@pytest.mark.parametrize("text", ["yesterday", "2026-05-16T12:34:56", "-4", "99999999999999999999"])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        AsOf.parse(text)


def test_two_points_are_refused() -> None:
    with pytest.raises(InputError, match="position and event_id name different points"):
        AsOf(position=1, event_id=2)
