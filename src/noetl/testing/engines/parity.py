"""A pytest plugin: after every test that writes to a PostgreSQL ledger, replay must equal the live projections.

Every test that uses the `ledger` fixture is followed by a projection of everything it wrote and a verification of every
organization and every shard. A test that damages rows on purpose is marked `no_parity`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from noetl.errors import PayloadMissing
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.payload_references import RecordedErasures
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.replay import Replay
from noetl.kernel.replay.report import VerifyReport
from noetl.kernel.replay.verify import Verifier


@dataclass(frozen=True)
class Projections:
    """Everything that reads a ledger, connected."""

    ledger: PostgresLedger
    history: History
    payloads: PayloadStore
    store: PostgresProjectionStore
    projector: Projector
    replay: Replay
    verifier: Verifier

    async def project(self) -> None:
        """Project everything up to the head."""
        await self.projector.run_until(await self.ledger.head())


def connect(
    database: Database,
    ledger: PostgresLedger,
    *,
    payloads: PayloadStore | None = None,
    folds: FoldRegistry | None = None,
    upcasters: Upcasters | None = None,
    snapshot_interval: int = 10_000,
) -> Projections:
    """Connect projector, replay and verifier to a ledger."""
    payloads, folds, upcasters = payloads or MemoryPayloadStore(), folds or FoldRegistry(), upcasters or Upcasters()
    store = PostgresProjectionStore(database)
    history = History(database, ledger, payloads)
    erasures = RecordedErasures(database)
    replay = Replay(history, payloads, store, folds, upcasters, snapshot_interval, database=database, erasures=erasures)
    return Projections(
        ledger=ledger,
        history=history,
        payloads=payloads,
        store=store,
        projector=Projector(
            ledger,
            store,
            folds,
            upcasters,
            on_batch=replay.keeper.on_batch,
            payloads=payloads,
            erasures=erasures,
            rereads=history,
        ),
        replay=replay,
        verifier=Verifier(history, payloads, store, folds, upcasters, database=database, erasures=erasures),
    )


async def assert_parity(
    database: Database, ledger: PostgresLedger, found: Projections | None = None, *, unreadable: bool = False
) -> None:
    """Project what is left and fail on the first thing that is not as the events say, in any organization.

    With `unreadable` organizations are passed over whose fields lie in a store that is not at hand here.
    """
    found = found or connect(database, ledger)
    await found.project()
    reports: list[VerifyReport] = [await found.verifier.verify(scope) for scope in await found.verifier.scopes()]
    differences = [
        difference
        for report in reports
        if not (unreadable and any(PayloadMissing.code in str(one.found) for one in report.differences))
        for difference in report.differences
    ]
    differences += await found.verifier.shards()
    assert not differences, "\n".join(difference.sentence() for difference in differences)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "no_parity: damages rows on purpose, so that replay cannot equal projections")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let every test of a PostgreSQL ledger end with the comparison."""
    names = getattr(item, "fixturenames", [])
    if "ledger" in names and "database" in names and item.get_closest_marker("no_parity") is None:
        names.append("replay_parity")


@pytest.fixture
async def replay_parity(database: Database, ledger: PostgresLedger) -> AsyncIterator[None]:
    """After the test, replay equals the live projections."""
    yield
    async with database.transaction(None, "projector") as connection:
        archived = await connection.fetchval("SELECT count(*) FROM noetl.event_archive WHERE dropped_at IS NOT NULL")
    # What was dropped can be read only with the payload store of the test, which has to compare by itself.
    if not archived:
        await assert_parity(database, ledger, unreadable=True)
