"""What a barrier costs: a view's micro-batch, with its rows and barrier in the database, beside a bare foreachBatch.

Both run the same query over the same events in batches of the same size, each on two cores of its own turn.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from bench.database_testbed import SCOPE, DatabaseTestbed, folder_for_server, open_database_testbed
from bench.figure import Figure, paired
from bench.history import long_execution
from bench.views_floor import ViewsFloor, median_ms
from noetl.engine.dispatch.drafts import Drafting
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.language.view.document import parse_view
from noetl.services.views.run import Surroundings, ViewRun
from noetl.services.views.sinks.own_rows import OwnRows
from noetl.services.views.versions import Versions
from noetl.spark.drivers.pool import Drivers
from noetl.spark.session.options import SparkOptions
from noetl.spark.source.options import source_options
from noetl.testing.samples.drafts import PRODUCER

EVENTS: Final = 120_000
BATCH: Final = 10_000
ROUNDS: Final = 5
BAR: Final = 1.5
CONF: Final = {"spark.sql.shuffle.partitions": "4"}
SQL: Final = """
SELECT get_json_object(meta, '$.worker') AS worker, count(*) AS frames,
       sum(CAST(get_json_object(meta, '$.row_count') AS BIGINT)) AS rows_given, max(event_time) AS newest
FROM events WHERE event_type = 'frame.dispatched' GROUP BY 1
"""
COLUMNS: Final = "event_id bigint, event_type string, event_time timestamp, meta string"
"""What the query reads; a view finds that out by itself, the floor is told."""
VIEW: Final = f"""
kind: View
name: bench
source: {{events: frame.*}}
sql: |
  {SQL.strip().replace(chr(10), chr(10) + "  ")}
keys: worker
barrier_interval_ms: 1
batch_events: {BATCH}
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure the milliseconds of a micro-batch."""
    del wanted
    async with open_database_testbed() as on, _views(on) as views:
        await long_execution(on, EVENTS)
        reach = {"database_url": on.database.url, "as_roles": True}
        told = source_options(SCOPE, reach, types="frame.*", batch_events=str(BATCH))
        floor = await ViewsFloor.start(
            master="local[2]", conf=CONF, sql=SQL, options=told, columns=COLUMNS, owner_url=on.server.url("noetl_admin")
        )
        try:
            await views.batch_ms(0)
            await floor.batch_ms(0)
            mine, bare, ratio = await paired(
                lambda number: views.batch_ms(number + 1), lambda number: floor.batch_ms(number + 1), ROUNDS
            )
        finally:
            await floor.stop()
    return [Figure.of("views.batch", ratio, mine, bare, "ms", BAR, "less")]


class _Timed(OwnRows):
    """The sink of views, which notes when each batch stands."""

    ended: list[float]

    async def apply(self, batch: Any) -> Any:
        """Write a batch and note the time."""
        barrier = await super().apply(batch)
        self.ended.append(time.perf_counter())
        return barrier


class _Views:
    """Builds a view over everything, again and again."""

    def __init__(self, on: DatabaseTestbed, around: Surroundings, ended: list[float]) -> None:
        self._on = on
        self._around = around
        self._ended = ended

    async def batch_ms(self, number: int) -> float:
        """Build the view anew and return how long a batch took."""
        versions = self._around.versions
        if number == 0:
            await versions.deploy(SCOPE, parse_view(VIEW), "bench")
        else:
            await versions.rebuild(SCOPE, "bench", "bench")
        version = [one for one in await versions.of(SCOPE, "bench") if one.status == "building"][-1]
        lease = await versions.claim(SCOPE, version, "bench", 600.0)
        assert lease is not None
        self._ended.clear()
        await ViewRun(self._around, version, lease).keep(await self._on.ledger.head())
        await versions.end(lease)
        return median_ms(self._ended)


@asynccontextmanager
async def _views(on: DatabaseTestbed) -> AsyncIterator[_Views]:
    home = folder_for_server()
    options = SparkOptions(home=str(home), cache=str(home), master="local[2]", conf=CONF, archive=False)
    ended: list[float] = []
    payloads = MemoryPayloadStore()

    def sink_of(scope: Any, version: Any, lease: Any) -> _Timed:
        sink = _Timed(on.database, scope, version.version_id, version.definition, lease)
        sink.ended = ended
        return sink

    async def no_datasets(scope: Any, dataset: str, mark: Any) -> dict[str, Any]:
        raise LookupError(dataset)

    drivers = Drivers(options)
    around = Surroundings(
        versions=Versions(on.database, on.ledger, payloads, Drafting(on.ids.mint_many, PRODUCER)),
        drivers=drivers,
        sink_of=sink_of,
        fetch=payloads.fetch,
        pin=no_datasets,
        reach={"database_url": on.database.url, "as_roles": True},
        master="local[2]",
        checkpoint=str(home / "checkpoints"),
        partitions=4,
    )
    try:
        yield _Views(on, around, ended)
    finally:
        await drivers.close()
        shutil.rmtree(home, ignore_errors=True)
