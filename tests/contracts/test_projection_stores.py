"""Stores by type: what is read through them keeps the store's contract, while frames and stages are in two databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.fold import FoldedRow
from noetl.kernel.projections.folds.frame import FRAME
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.by_type import StoredByType, StoreLine
from noetl.kernel.projections.stores.port import (
    NOTHING_BROKEN,
    Failure,
    ProjectionStore,
    Replaced,
    Replacement,
    ShardState,
    StreamChanges,
)
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Event
from noetl.runtime.metrics.projections import StoreMetrics
from noetl.testing.contracts.projections.contract import ProjectionStoreContract
from noetl.testing.contracts.projections.samples import CARE, SHARD, folded, ids_of
from noetl.testing.samples.projected_ledger import a_run, record
from noetl.testing.servers.postgres import FreshDatabases

pytestmark = pytest.mark.service


class Written(StoredByType):
    """Both stores written as their projectors would, one after the other; the contract reads what came of it."""

    async def save_projections(
        self,
        shard: int,
        after: int,
        upto: int,
        rows: Sequence[FoldedRow],
        events: Sequence[Event],
        folds: Mapping[str, int] | None = None,
        streams: StreamChanges = NOTHING_BROKEN,
    ) -> bool:
        for line in reversed(self.lines):
            own = [row for row in rows if self.line_of(row.key.projection) is line]
            if not await line.store.save_projections(shard, after, upto, own, events, folds, streams):
                return False
        return True

    @asynccontextmanager
    async def replacing(self, shard: int) -> AsyncIterator[Replacement]:
        async with AsyncExitStack() as stack:
            parts = [await stack.enter_async_context(line.store.replacing(shard)) for line in self.lines]
            yield Parts(self, parts)

    async def record_failure(self, shard: int, after: int, failure: Failure) -> None:
        await self.lines[1].store.record_failure(shard, after, failure)

    async def shard_states(self) -> list[ShardState]:
        return await self.lines[1].store.shard_states()

    async def broken_streams(self, shard: int | None = None) -> list[BrokenStream]:
        return await self.lines[1].store.broken_streams(shard)

    def held_events(self, broken: BrokenStream) -> AsyncIterator[Event]:
        return self.lines[1].store.held_events(broken)


class Parts:
    """A shard built anew in both stores."""

    def __init__(self, stores: StoredByType, parts: Sequence[Replacement]) -> None:
        self._stores, self._parts = stores, parts

    async def put(self, rows: Sequence[FoldedRow]) -> None:
        for line, part in zip(self._stores.lines, self._parts, strict=True):
            await part.put([row for row in rows if self._stores.line_of(row.key.projection) is line])

    async def finish(self, upto: int, folds: Mapping[str, int], broken: Sequence[BrokenStream] = ()) -> Replaced:
        done = [await part.finish(upto, folds, broken) for part in self._parts]
        return Replaced(*(sum(getattr(one, name) for one in done) for name in Replaced.__struct_fields__))


@pytest.fixture
async def elsewhere(fresh_databases: FreshDatabases) -> AsyncIterator[Database]:
    """The database of another store."""
    name = fresh_databases.take()
    database = Database(fresh_databases.url(name), as_roles=True)
    yield database
    await database.close()
    fresh_databases.drop(name)


@pytest.fixture
def written(database: Database, elsewhere: Database) -> Written:
    rest = FoldRegistry(fold for fold in built_in_folds() if fold is not FRAME)
    return Written([
        StoreLine("default", PostgresProjectionStore(database), rest),
        StoreLine("analytics", PostgresProjectionStore(elsewhere), FoldRegistry([FRAME])),
    ])  # fmt: skip


class TestByType(ProjectionStoreContract):
    """The contract, read through stores by type. INV-124."""

    @pytest.fixture
    def store(self, written: Written) -> ProjectionStore:
        return written


async def test_rows_of_a_type_that_went_elsewhere_are_not_shown(written: Written) -> None:
    """INV-124: a store that no longer has a type serves nothing of it."""
    default, analytics = (line.store for line in written.lines)
    await default.save_projections(SHARD, 0, 4, [folded("stale"), folded("9", projection="stage")], [])
    await analytics.save_projections(SHARD, 0, 4, [folded("new"), folded("8", projection="stage")], [])
    assert await ids_of(written) == ["new"]
    assert await written.load_projections([folded("stale").key, folded("new").key]) == [folded("new")]
    async with written.snapshot_view(CARE) as view:
        assert [row.folded.key.row_id async for row in view.query()] == ["new", "9"]


async def test_checkpoints_are_those_that_all_stores_have_reached(written: Written) -> None:
    """INV-124."""
    default, analytics = (line.store for line in written.lines)
    await default.save_projections(SHARD, 0, 4, [], [])
    await analytics.save_projections(SHARD, 0, 9, [], [])
    async with written.snapshot_view(CARE) as view:
        assert (await view.checkpoints()).positions[SHARD] == 4
    assert (await written.checkpoints()).positions[SHARD] == 4
    assert (await written.others_at())["analytics"].positions[SHARD] == 9


@pytest.mark.no_parity
async def test_metrics_tell_how_far_each_store_is_and_whether_it_answers(
    written: Written, database: Database, ledger: PostgresLedger
) -> None:
    registry = CollectorRegistry()
    metrics = StoreMetrics(registry)

    def told(name: str) -> float | None:
        return registry.get_sample_value(f"projection_store_{name}", {"store": "analytics"})

    await record(ledger, a_run(CARE))
    await metrics.read(database, written)
    assert (told("up"), told("lag_events")) == (1, sum((await ledger.head()).positions))
    line = written.lines[1]
    await Projector(ledger, line.store, line.folds, Upcasters()).run_until(await ledger.head())
    await metrics.read(database, written)
    assert (told("up"), told("lag_events")) == (1, 0)
    away = StoreLine("analytics", PostgresProjectionStore(Database("postgresql://127.0.0.1:1/none")), line.folds)
    await metrics.read(database, StoredByType([written.lines[0], away]))
    assert (told("up"), told("lag_events")) == (0, 0)
