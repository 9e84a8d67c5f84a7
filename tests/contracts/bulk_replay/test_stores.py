"""Projections in several stores are verified on Spark as by a single process: each at its own checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.contracts.bulk_replay.replay_testbed import OWN, InProcess, open_testbed, registry, upcasters, write_history

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.frame import FRAME
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.by_type import StoreLine
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.replay.verify import Verifier
from noetl.spark.bulk_replay.organization import BulkFolds
from noetl.spark.bulk_replay.verification import BulkVerifier
from noetl.testing.servers.postgres import FreshDatabases

pytestmark = [pytest.mark.service, pytest.mark.no_parity]


@pytest.fixture
async def analytics(fresh_databases: FreshDatabases) -> AsyncIterator[StoreLine]:
    """A store of frames in a database of its own."""
    name = fresh_databases.take()
    database = Database(fresh_databases.url(name), as_roles=True)
    yield StoreLine("analytics", PostgresProjectionStore(database), FoldRegistry([FRAME]))
    await database.close()
    fresh_databases.drop(name)


async def test_each_store_is_compared_at_its_own_checkpoints(
    database: Database, ledger: PostgresLedger, analytics: StoreLine, tmp_path: Path
) -> None:
    """INV-124."""
    testbed = open_testbed(database, ledger, tmp_path)
    found, folds, steps = testbed.found, registry(), upcasters()
    bulk = BulkFolds(InProcess(), testbed.reach, found.history, database, steps, iter(range(9)).__next__)
    parts = (found.history, found.payloads, found.store, folds, steps)
    single = Verifier(*parts, database=database, others=[analytics])
    spark = BulkVerifier(bulk, *parts, database=database, others=[analytics])

    await write_history(ledger)
    there = await ledger.head()
    await Projector(ledger, analytics.store, analytics.folds, steps).run_until(there)
    await write_history(ledger)
    await found.project()
    report = await single.verify(OWN)
    assert report == await spark.verify(OWN)
    assert report.clean
    (store,) = report.stores
    assert (store.mark, report.mark) == (there, await ledger.head())
    assert (report.lag, store.lag) == (sum(report.mark.positions) - sum(there.positions),) * 2

    damaging = await asyncpg.connect(analytics.database.url, user="noetl_projector")
    await damaging.execute(
        """UPDATE noetl.projection SET state = '{"status":"FAKE"}' WHERE execution_id =
        (SELECT min(execution_id) FROM noetl.projection WHERE tenant_id = $1 AND organization_id = $2)""",
        OWN.tenant_id,
        OWN.organization_id,
    )
    await damaging.close()
    report = await single.verify(OWN)
    assert report == await spark.verify(OWN)
    assert [(part.projection, part.store) for part in report.projections if not part.equal] == [("frame", "analytics")]
