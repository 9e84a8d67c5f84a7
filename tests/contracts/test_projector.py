"""The live projector on real parts: what it stores equals a pure fold of the ledger, whatever comes in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from noetl.errors import FoldFailed, HistoryNotKept, NoetlError, Unsupported
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Fold, Row
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.lag import shard_lags
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.rebuild import rebuild
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.projected_ledger import HOME, IDS, NEIGHBOUR, a_run, pure_rows, record, stored_rows

# These projectors run folds of their own, and each test compares with a pure fold by itself.
pytestmark = [pytest.mark.service, pytest.mark.no_parity]

Make = Callable[..., Projector]


def invoice_fold(refused: int | None = None, version: int = 1) -> Fold:
    """Sum invoices up; one amount may be refused."""

    @business_object("invoice", events=["business.invoice.posted"], version=version)
    def invoice(row: Row | None, event: Event) -> Row:
        if event.meta["amount"] == refused:
            raise ValueError("that much is too much")
        row = row or {"total": 0}
        row["total"] += event.meta["amount"]
        return row

    return invoice


FOLDS = (*built_in_folds(), invoice_fold())


@pytest.fixture
def store(database: Database) -> PostgresProjectionStore:
    return PostgresProjectionStore(database)


@pytest.fixture
async def make(database: Database, ledger: PostgresLedger, store: PostgresProjectionStore) -> AsyncIterator[Make]:
    """Makes projectors and stops them all in the end."""
    made: list[Projector] = []

    def projector(folds: tuple[Fold, ...] = FOLDS, *, poll_seconds: float = 60.0, **options: Any) -> Projector:
        options.setdefault("listen", lambda: listening(database, "projector", poll_seconds))
        made.append(Projector(ledger, store, FoldRegistry(folds), Upcasters(), **options))
        return made[-1]

    yield projector
    for each in made:
        await each.stop()


class Reached:
    """Counts batches and lets a test wait until the projections cover a mark."""

    def __init__(self, store: PostgresProjectionStore) -> None:
        self._store = store
        self._batch = asyncio.Event()
        self.positions: list[tuple[int, int]] = []

    async def __call__(self, shard: int, events: list[Event]) -> None:
        self.positions += [(shard, event.position) for event in events]
        self._batch.set()

    async def until(self, mark: Mark) -> None:
        async with asyncio.timeout(20):
            while not (await self._store.checkpoints()).covers(mark):
                await self._batch.wait()
                self._batch.clear()


@pytest.mark.parametrize("batch_events", [1, 7, 2000])
async def test_rows_equal_a_pure_fold_of_the_ledger(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make, batch_events: int
) -> None:
    for scope in (HOME, NEIGHBOUR):
        await record(ledger, [*a_run(scope), *a_run(scope, ended=False)])
    head = await ledger.head()
    await make(batch_events=batch_events).run_until(head)
    assert await store.checkpoints() == head
    rows = await stored_rows(store)
    assert rows == await pure_rows(ledger, FOLDS)
    assert {key.projection for key in rows} == {"execution", "stage", "frame", "loop", "business_object/invoice"}


async def test_running_until_a_mark_goes_no_further(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    await record(ledger, a_run(HOME))
    mark = await ledger.head()
    await record(ledger, a_run(HOME))
    await make().run_until(mark)
    assert await store.checkpoints() == mark


async def test_running_until_a_mark_that_is_passed_changes_nothing(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    await record(ledger, a_run(HOME))
    await make().run_until(await ledger.head())
    rows, at = await stored_rows(store), await store.checkpoints()
    await make().run_until(await ledger.head())
    await make().run_until(Mark.zero())
    assert (await stored_rows(store), await store.checkpoints()) == (rows, at)


async def test_a_new_projector_goes_on_where_the_last_one_stopped(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    first, second = Reached(store), Reached(store)
    events = a_run(HOME, 4)
    await record(ledger, events[:9])
    await make(on_batch=first).run_until(await ledger.head())
    await record(ledger, events[9:])
    await make(on_batch=second).run_until(await ledger.head())
    assert await stored_rows(store) == await pure_rows(ledger, FOLDS)
    assert not set(first.positions) & set(second.positions)
    assert len(first.positions) + len(second.positions) == len(events)


async def test_projectors_of_the_same_shards_never_fold_an_event_twice(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    seen = Reached(store)
    projectors = [make(batch_events=size, on_batch=seen) for size in (1, 2, 3)]
    for each in projectors:
        await each.start()
    for scope in (HOME, NEIGHBOUR, HOME):
        await record(ledger, a_run(scope))
    await seen.until(await ledger.head())
    for each in projectors:
        await each.stop()
    assert await stored_rows(store) == await pure_rows(ledger, FOLDS)
    assert len(seen.positions) == len(set(seen.positions))


async def test_an_append_is_projected_by_its_notification_long_before_the_next_poll(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    seen = Reached(store)
    await make(on_batch=seen).start()
    for _ in range(3):
        await record(ledger, a_run(HOME))
        await seen.until(await ledger.head())
    assert await stored_rows(store) == await pure_rows(ledger, FOLDS)


async def test_what_stood_before_the_start_is_projected_without_any_news(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    await record(ledger, a_run(HOME))
    seen = Reached(store)
    await make(on_batch=seen).start()
    await seen.until(await ledger.head())


async def test_a_lost_notification_costs_no_more_than_a_poll(
    database: Database, store: PostgresProjectionStore, make: Make
) -> None:
    mute = PostgresLedger(database, listen=False)
    seen = Reached(store)
    await make(poll_seconds=0.05, on_batch=seen).start()
    for _ in range(3):
        await record(mute, a_run(HOME))
        await seen.until(await mute.head())
    await mute.close()


async def test_a_projector_listens_again_when_its_connection_was_cut(
    database: Database, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    opened = asyncio.Queue[None]()

    @asynccontextmanager
    async def listen() -> AsyncIterator[Any]:
        async with listening(database, "projector", 0.1) as listener:
            opened.put_nowait(None)
            yield listener

    seen = Reached(store)
    await make(listen=listen, on_batch=seen).start()
    await opened.get()
    await _cut_sessions_of_projectors(database)
    async with asyncio.timeout(20):
        while opened.empty():
            await record(ledger, a_run(HOME))
            await seen.until(await ledger.head())
    assert await stored_rows(store) == await pure_rows(ledger, FOLDS)


async def _cut_sessions_of_projectors(database: Database) -> None:
    connection = await database.connect("projector")
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE usename = current_user AND pid <> pg_backend_pid() AND datname = current_database()"
    )
    await connection.close()


async def test_cut_connections_are_survived_and_logged_once(
    database: Database,
    ledger: PostgresLedger,
    store: PostgresProjectionStore,
    make: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Reached(store)
    with caplog.at_level(logging.INFO, "noetl.projector"):
        await make(poll_seconds=0.05, batch_events=1, on_batch=seen).start()
        for number in range(6):
            await record(ledger, a_run(HOME))
            if number % 2:
                await _cut_sessions_of_projectors(database)
        await seen.until(await ledger.head())
    assert await stored_rows(store) == await pure_rows(ledger, FOLDS)
    assert len(seen.positions) == len(set(seen.positions))
    states = [vars(entry)["action"] for entry in caplog.records if vars(entry).get("concerns") == "database"]
    assert not any(one == other for one, other in pairwise(states))


async def test_a_stopped_projector_may_be_started_again(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    seen = Reached(store)
    projector = make(on_batch=seen)
    await projector.stop()
    await projector.start()
    await projector.start()
    await projector.stop()
    await projector.stop()
    await record(ledger, a_run(HOME))
    assert await store.checkpoints() == Mark.zero()
    await projector.start()
    await seen.until(await ledger.head())


async def test_run_ends_when_stopped_and_when_cancelled(make: Make) -> None:
    projector = make()
    await projector.start()
    running = asyncio.create_task(projector.run())
    await asyncio.sleep(0)
    await projector.stop()
    await asyncio.wait_for(running, 10)
    again = asyncio.create_task(projector.run())
    await projector.start()
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("noetl-projector")]


async def test_a_projector_of_some_shards_leaves_the_others_alone(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    await record(ledger, [draft for _ in range(6) for draft in a_run(HOME, 0)])
    head = await ledger.head()
    mine = [shard for shard in range(16) if head.positions[shard]][:2]
    await make(shards=mine).run_until(head)
    at = await store.checkpoints()
    assert [shard for shard in range(16) if at.positions[shard]] == mine


class TestFailures:
    """A fold that cannot take an event stops its shard, visibly, and nothing is skipped."""

    async def refused(self, ledger: PostgresLedger) -> Event:
        """Record invoices of 1, 13 and 2 and return the event of the second, which the fold will refuse."""
        drafts = Drafts(HOME, IDS.mint)
        amounts = [drafts.business("object/i", 7, "business.invoice.posted", meta={"amount": n}) for n in (1, 13, 2)]
        await record(ledger, amounts)
        return [event async for event in ledger.read(amounts[0].stream)][1]

    async def test_the_shard_stops_right_before_the_event_and_says_why(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        bad = await self.refused(ledger)
        await record(ledger, a_run(NEIGHBOUR))
        with pytest.raises(FoldFailed, match="too much"):
            await make((*built_in_folds(), invoice_fold(refused=13))).run_until(await ledger.head())
        states = await store.shard_states()
        assert [state.shard for state in states if state.failure] == [bad.shard]
        failure = states[bad.shard].failure
        assert failure is not None
        assert (failure.code, failure.position, failure.event_id) == ("fold_failed", bad.position, str(bad.event_id))
        assert failure.projection == "business_object/invoice"
        assert "too much" in failure.message
        assert states[bad.shard].position == bad.position - 1
        head = await ledger.head()
        assert [s.shard for s in states if s.position < head.positions[s.shard]] == [bad.shard]

    async def test_a_mended_fold_goes_on_at_the_event_and_clears_the_failure(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        bad = await self.refused(ledger)
        with pytest.raises(FoldFailed):
            await make((*built_in_folds(), invoice_fold(refused=13))).run_until(await ledger.head())
        await make().run_until(await ledger.head())
        assert (await store.shard_states())[bad.shard].failure is None
        assert await stored_rows(store) == await pure_rows(ledger, FOLDS)
        rows = [row.folded.row async for row in store.query(HOME, "business_object/invoice")]
        assert rows == [{"total": 16}]

    async def test_a_following_projector_keeps_trying_and_the_other_shards_go_on(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        tries = asyncio.Queue[int]()

        @business_object("invoice", events=["business.invoice.posted"])
        def invoice(row: Row | None, event: Event) -> Row:
            if event.meta["amount"] == 13 and tries.qsize() < 3:
                tries.put_nowait(event.position)
                raise ValueError("not yet")
            return {"total": (row or {"total": 0})["total"] + event.meta["amount"]}

        seen = Reached(store)
        await make((*built_in_folds(), invoice), on_batch=seen).start()
        await self.refused(ledger)
        await record(ledger, a_run(NEIGHBOUR))
        await seen.until(await ledger.head())
        assert tries.qsize() == 3
        assert await stored_rows(store) == await pure_rows(ledger, FOLDS)
        troubles = [entry for entry in caplog.records if vars(entry).get("action") == "projector.waiting"]
        assert len(troubles) == 1
        assert "not yet" in troubles[0].getMessage()

    async def test_a_row_that_cannot_be_written_is_traced_to_its_event(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        bad = await self.refused(ledger)

        def unwritable(row: Row | None, event: Event) -> Row:
            return {"when": event.event_time if event.position >= bad.position else None}

        fold = Fold("odd", 1, frozenset({bad.event_type}), lambda e: e.aggregate_id, unwritable, lambda _: False)
        with pytest.raises(NoetlError, match=f"event {bad.event_id} .* cannot be projected: TypeError: .* datetime"):
            await make((fold,)).run_until(await ledger.head())
        state = (await store.shard_states())[bad.shard]
        assert state.failure is not None
        assert (state.position, state.failure.position) == (bad.position - 1, bad.position)
        assert state.failure.event_id == str(bad.event_id)

    async def test_what_follows_a_batch_may_fail_without_stopping_the_projector(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail(shard: int, events: list[Event]) -> None:
            raise RuntimeError("the snapshot store is away")

        await record(ledger, a_run(HOME))
        await make(on_batch=fail).run_until(await ledger.head())
        assert await store.checkpoints() == await ledger.head()
        assert "the snapshot store is away" in caplog.text

    async def test_an_object_fed_from_two_shards_stops_the_second(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        fields: dict[str, Any] = {"aggregate_id": "same", "meta": {"amount": 1}}
        drafts = Drafts(HOME, IDS.mint)
        for number in range(12):
            draft = drafts.business(f"object/{number}", 7, "business.invoice.posted", **fields)
            await ledger.append(draft.stream, [draft])
        with pytest.raises(FoldFailed, match="no order between shards"):
            await make().run_until(await ledger.head())
        (row,) = [row async for row in store.query(HOME, "business_object/invoice")]
        failed = [state.shard for state in await store.shard_states() if state.failure]
        head = await ledger.head()
        assert failed == [s for s in range(16) if head.positions[s] and s != row.folded.shard]

    async def test_rows_of_another_version_of_a_fold_ask_for_a_rebuild(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        await record(ledger, a_run(HOME))
        await make().run_until(await ledger.head())
        await record(ledger, a_run(HOME))
        newer = (*built_in_folds(), invoice_fold(version=2))
        with pytest.raises(Unsupported):
            await make(newer).run_until(await ledger.head())
        hints = [state.failure.hint or "" for state in await store.shard_states() if state.failure]
        assert hints
        assert all("`noetl projections rebuild`" in hint for hint in hints)
        report = await rebuild(ledger, store, FoldRegistry(newer), Upcasters())
        assert report.changed > 0
        assert not any(state.failure for state in await store.shard_states())
        await record(ledger, a_run(HOME))
        await make(newer).run_until(await ledger.head())
        assert await stored_rows(store) == await pure_rows(ledger, newer)


async def test_lag_counts_events_and_the_wait_of_the_oldest(
    ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
) -> None:
    await record(ledger, a_run(HOME))
    before = await shard_lags(ledger, store)
    head = await ledger.head()
    assert [lag.lag_events for lag in before] == list(head.positions)
    assert all((lag.lag_seconds > 0) == (lag.lag_events > 0) for lag in before)
    await make().run_until(head)
    after = await shard_lags(ledger, store)
    assert [(lag.lag_events, lag.lag_seconds) for lag in after] == [(0, 0.0)] * 16
    assert [lag.checkpoint for lag in after] == [lag.head for lag in after] == list(head.positions)
    assert sum(lag.rows for lag in after) == len(await stored_rows(store))


class TestRebuild:
    """A rebuild gives what projecting gave, repairs what was damaged, and lets a live projector go on."""

    async def test_a_rebuild_of_sound_projections_changes_nothing(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        await record(ledger, [*a_run(HOME), *a_run(NEIGHBOUR, ended=False)])
        await make().run_until(await ledger.head())
        rows = await stored_rows(store)
        steps: list[tuple[int, int, int]] = []
        report = await rebuild(
            ledger, store, FoldRegistry(FOLDS), Upcasters(), progress=lambda *step: steps.append(step)
        )
        assert report.changed == 0
        assert sum(shard.rows.before for shard in report.shards) == len(rows)
        assert await stored_rows(store) == rows
        assert steps == [(shard, p, p) for shard, p in enumerate((await ledger.head()).positions)]

    async def test_a_rebuild_repairs_deleted_changed_and_invented_rows(
        self, database: Database, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        events = a_run(HOME, 5)
        await record(ledger, events)
        await make().run_until(await ledger.head())
        async with database.transaction(None, "projector") as connection:
            await connection.execute("DELETE FROM noetl.projection WHERE projection = 'loop'")
            await connection.execute("UPDATE noetl.projection SET status = 'FAKE' WHERE projection = 'stage'")
            await connection.execute(
                "INSERT INTO noetl.projection SELECT tenant_id, organization_id, projection, 'invented', execution_id, shard,"
                " first_position, last_position, fold_version, status, checksum, state FROM noetl.projection"
                " WHERE projection = 'stage'"
            )
        report = await rebuild(ledger, store, FoldRegistry(FOLDS), Upcasters())
        found = [each.rows for each in report.shards if each.rows.added]
        assert [(rows.changed, rows.added, rows.removed) for rows in found] == [(1, 1, 1)]
        assert await stored_rows(store) == await pure_rows(ledger, FOLDS)
        assert [row.status async for row in store.query(HOME, "stage")] == ["OK"]

    async def test_a_live_projector_waits_for_the_rebuild_and_goes_on(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        seen = Reached(store)
        await make(on_batch=seen, batch_events=3).start()
        for _ in range(3):
            await asyncio.gather(record(ledger, a_run(HOME)), rebuild(ledger, store, FoldRegistry(FOLDS), Upcasters()))
        await seen.until(await ledger.head())
        assert await stored_rows(store) == await pure_rows(ledger, FOLDS)

    async def test_a_history_with_a_hole_is_refused_and_the_shard_kept(
        self, ledger: PostgresLedger, store: PostgresProjectionStore, make: Make
    ) -> None:
        await record(ledger, a_run(HOME))
        await make().run_until(await ledger.head())
        rows = await stored_rows(store)

        class Holed:
            head = ledger.head

            async def read_shard(self, shard: int, *args: Any, **options: Any) -> AsyncIterator[Event]:
                async for event in ledger.read_shard(shard, *args, **options):
                    if event.position != 2:
                        yield event

        with pytest.raises(HistoryNotKept, match="position 2 of shard"):
            await rebuild(Holed(), store, FoldRegistry(FOLDS), Upcasters())
        assert await stored_rows(store) == rows
