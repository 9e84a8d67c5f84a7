"""Rows of lineage follow from the events: what is stored equals the fold, and each version keeps its own edges."""

from __future__ import annotations

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.testing.samples.executions import SCOPE
from noetl.testing.samples.pipelines import Piped, named

from .story_lineage import some_lineage
from .work_tables import rows

pytestmark = pytest.mark.service


async def test_each_version_of_lineage_keeps_its_own_edges(ledger: PostgresLedger, database: Database) -> None:
    """INV-73."""
    dag = Piped()
    await ledger.transact(dag.requested())
    await ledger.transact(dag.deployed())
    for change in some_lineage(dag):
        await ledger.transact(change)
        assert await pipeline_differences(database, SCOPE) == []
    told = await rows(database, "dataset_lineage", "version, number, how, reason, columns_ref IS NULL")
    assert sorted(told) == [
        (1, 1, "unknown", "no plan", True),
        (2, 2, "sql", None, True),
        (3, 3, "plan", None, False),
    ]
    edges = await rows(database, "column_lineage", "version, place, output_column, input_dataset_uuid::text, kind")
    orders = named("orders")
    assert sorted(edges, key=lambda edge: edge[:2]) == [
        (1, 0, "day", orders, "opaque"),
        (2, 0, "day", orders, "direct"),
        (2, 1, "ü total", orders, "aggregated"),
        (2, 2, "one", None, "constant"),
        (2, 3, None, orders, "indirect"),
    ]
