"""How fast the event lake is written, beside a bare read by ADBC into Spark and a Parquet write of the same rows; and
how far it is behind while it follows a ledger that others write to.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Collection
from typing import Any, Final

from bench import lake_floor
from bench.bulk_history import many_executions
from bench.figure import Figure, alternating
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from noetl.model.mark import Mark
from noetl.model.stream import execution_stream
from noetl.runtime.spark.event_lake.lake import EventLake, open_event_lake
from noetl.testing.samples.drafts import Drafts

EXECUTIONS: Final = 10_000
"""Of a hundred events each."""
ROUNDS: Final = 3
PIECE: Final = 50_000
RATE: Final = 2_000
SECONDS: Final = 20
APPENDS: Final = 20
"""A second, each with its share of the events."""


async def figures(wanted: Collection[str], executions: int = EXECUTIONS) -> list[Figure]:
    """Fill a ledger and measure what is wanted of its lake."""
    found = []
    async with (
        open_pipeline_testbed(worker=False, event_lake={"facts": False}) as testbed,
        open_event_lake(testbed.runtime) as lake,
    ):
        if "lake.lag_p95_ms" in wanted:
            found.append(await _lag(testbed, lake))
        if "lake.rate" in wanted:
            found.append(await _rate(testbed, lake, executions))
    return found


async def _rate(testbed: PipelineTestbed, lake: EventLake, executions: int) -> Figure:
    bare = await testbed.bare()
    events = await many_executions(bare, testbed.runtime.ids.mint, executions)
    await bare.close()
    head = await testbed.runtime.ledger.head()
    pieces = [
        (shard, first, min(first + PIECE - 1, last))
        for shard, last in enumerate(head.positions)
        for first in range(1, last + 1, PIECE)
    ]
    floor = await lake_floor.start()
    # As a role that sees all rows, so that the floor does not pay for being held to one organization.
    known = testbed.runtime.database.url
    url = f"{known}{'&' if '?' in known else '?'}user=noetl_projector"

    async def ours(_: int) -> float:
        began = time.perf_counter()
        await lake.rebuild()
        return time.perf_counter() - began

    async def barely(_: int) -> float:
        return await floor.seconds(url=url, pieces=pieces)

    await lake.sync()
    await barely(0)
    mine, base = await alternating(ours, barely, ROUNDS)
    compared = await lake.verify()
    assert compared["equal"], compared["difference"]
    await floor.stop()
    return Figure.ratio("lake.rate", events / mine, events / base, "events/s", 0.6, "more")


async def _lag(testbed: PipelineTestbed, lake: EventLake) -> Figure:
    """Follow while events come in at a steady rate, and look how old each was when it became visible."""
    stop, began = asyncio.Event(), asyncio.Event()
    commits: list[tuple[float, Mark]] = []

    def told(progress: dict[str, Any]) -> None:
        commits.append((time.time(), Mark.parse(progress["mark"])))
        began.set()

    await _append(testbed, 1)
    following = asyncio.create_task(lake.sync(follow=True, told=told, stop=stop))
    await began.wait()
    start = end = await testbed.runtime.ledger.head()
    due = time.monotonic()
    for _ in range(SECONDS * APPENDS):
        end = end.merge(await _append(testbed, RATE // APPENDS))
        due += 1 / APPENDS
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    while not commits[-1][1].covers(end) and not following.done():
        began.clear()
        await asyncio.wait({following, asyncio.create_task(began.wait())}, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await following
    lags = await _lags(testbed, start, end, commits)
    return Figure.plain("lake.lag_p95_ms", statistics.quantiles(lags, n=20)[-1] * 1000, "ms", 3000, "less")


async def _append(testbed: PipelineTestbed, count: int) -> Mark:
    """Append events of an execution, and return the mark that they reach."""
    own = testbed.runtime
    drafts = Drafts(own.scope, own.ids.mint)
    run = own.ids.mint()
    events = [drafts.execution(run, "step.entered", node_name=f"step {number}") for number in range(count - 1)]
    appended = await own.ledger.append(execution_stream(own.scope, run), [drafts.execution(run), *events])
    return Mark.zero().with_position(appended.shard, appended.last_position)


async def _lags(testbed: PipelineTestbed, start: Mark, end: Mark, commits: list[tuple[float, Mark]]) -> list[float]:
    """Return, for each event, the seconds from when the ledger took it in until the lake showed it."""
    connection = await testbed.bare()
    rows = await connection.fetch("SELECT shard, position, extract(epoch FROM ingest_time) AS at FROM noetl.event")
    await connection.close()
    found = []
    for row in rows:
        shard, position = row["shard"], row["position"]
        if start.positions[shard] < position <= end.positions[shard]:
            seen = next(at for at, mark in commits if mark.positions[shard] >= position)
            found.append(seen - float(row["at"]))
    return found
