"""A testbed of tasks with changes on it: what a worker writes depends on what the test says the world is like."""

from __future__ import annotations

import time
from typing import Any

from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.kernel.ledger.history import History
from noetl.model.ids import SnowflakeGenerator
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.changes.backfills.rows import Backfill
from noetl.pipelines.changes.engine import Changes
from noetl.pipelines.changes.invalidations import Invalidation
from noetl.testing.samples.drafts import PRODUCER

LEVELS = """
name: shop
jobs:
  - {name: orders, operator: made_up, runtime: dispatcher, partition_by: [day]}
  - {name: clean, operator: made_up, runtime: dispatcher, partition_by: [day], inputs: [orders]}
  - {name: priced, operator: made_up, runtime: dispatcher, partition_by: [day], inputs: [clean]}
  - {name: totals, operator: made_up, runtime: dispatcher, inputs: [priced]}
publish: [orders, clean, priced, totals]
"""


class Changing(TaskTestbed):
    """One organization's engine and what changes its data."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        ids = SnowflakeGenerator(options.get("node", 1) + 100, lambda: int(time.time() * 1000))
        datasets = Datasets(self.database, self.payloads, History(self.database, self.ledger, self.payloads))
        self.changes = Changes(
            self.database, self.ledger, self.payloads, datasets, self.engine, ids.mint, PRODUCER, max_in_flight=4
        )
        self.drain_of_backfills = self.changes.drain(patience_seconds=0)

    async def invalidate(self, name: str, **asked: Any) -> Invalidation:
        """Say that rows are wrong."""
        return await self.changes.invalidations.invalidate(self.scope, name, by="ann", **asked)

    async def backfill(self, name: str, start: str, end: str, **asked: Any) -> Backfill:
        """Queue a backfill."""
        found, plan = await self.changes.plan_backfill(self.scope, name, start=start, end=end, **asked)
        return await self.changes.backfills.request(self.scope, found, plan, by="ann")

    async def shown(self, one: Backfill) -> Backfill:
        """Return a backfill as it stands now."""
        return await self.changes.backfills.show(self.scope, one.backfill_id)

    async def drive(self, *, salt: str = "") -> list[str]:
        """Do all that waits and all that backfills give out, and return the work in its order."""
        worked: list[str] = []
        while True:
            steps = await self.drain_of_backfills.drain()
            done = await self.work(salt=salt)
            if not steps and not done:
                return worked
            worked += done

    async def events(self, stream_id: str) -> list[str]:
        """Return the types of a stream's events."""
        rows = await self.rows(
            "SELECT event_type FROM noetl.event WHERE stream_id = $1 ORDER BY stream_version", stream_id
        )
        return [row["event_type"] for row in rows]
