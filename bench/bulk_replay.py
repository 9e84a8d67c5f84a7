"""How fast a whole organization is replayed on Spark, beside a single process: the same events, folds and checksums.

Both are measured warm and in turn, on the ledger and on the event lake, and once more on half of the history.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from bench.bulk_history import many_executions
from bench.figure import Figure, alternating
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from noetl.kernel.replay.as_of import AsOf
from noetl.kernel.replay.replay import ReplayedState
from noetl.model.mark import Mark
from noetl.runtime.spark.bulk_replay import Source, open_bulk_replay
from noetl.runtime.spark.event_lake.lake import open_event_lake

EXECUTIONS: Final = 20_000
ROUNDS: Final = 3
_BARS: Final = {"ledger": 1.0, "lake": 1.5}
_GROWTH: Final = 1.2
"""How much longer an event may take in the whole history than in half of it."""


async def figures(wanted: Collection[str], executions: int = EXECUTIONS) -> list[Figure]:
    """Fill a ledger and measure what is wanted of it."""
    async with open_pipeline_testbed(worker=False) as testbed:
        bare = await testbed.bare()
        events = await many_executions(bare, testbed.runtime.ids.mint, executions)
        await bare.close()
        mark = await testbed.runtime.ledger.head()
        found = []
        if "bulk-replay.ledger" in wanted:
            found.append(await _beside_one_process(testbed, "ledger", mark, events))
        if "bulk-replay.growth" in wanted:
            found.append(await _growth(testbed, mark))
        if "bulk-replay.lake" in wanted:
            async with open_event_lake(testbed.runtime) as lake:
                await lake.sync()
            found.append(await _beside_one_process(testbed, "lake", mark, events))
        return found


async def _beside_one_process(testbed: PipelineTestbed, source: Source, mark: Mark, events: int) -> Figure:
    """Compare rates; the first replay of each warms it and proves that both come to the same."""
    runtime = testbed.runtime
    async with open_bulk_replay(runtime, source) as bulk:

        async def on_spark() -> ReplayedState:
            return await bulk.replay.state(runtime.scope, as_of=AsOf(mark=mark), projection="all", rows="none")

        async def in_process() -> ReplayedState:
            return await runtime.replay.state(runtime.scope, as_of=AsOf(mark=mark), projection="all", rows="none")

        known, found = await in_process(), await on_spark()
        assert (found.checksum, found.events) == (known.checksum, events), "both must come to the same"
        ours, floor = await alternating(_seconds(on_spark), _seconds(in_process), ROUNDS)
    name = f"bulk-replay.{source}"
    return Figure.ratio(name, events / ours, events / floor, "events/s", _BARS[source], "more")


async def _growth(testbed: PipelineTestbed, mark: Mark) -> Figure:
    """Compare what one event costs in the whole history and in half of it."""
    scope = testbed.runtime.scope
    half = Mark([position // 2 for position in mark.positions])
    async with open_bulk_replay(testbed.runtime) as bulk:
        seconds: dict[Mark, list[float]] = {mark: [], half: []}
        await bulk.replay.state(scope, as_of=AsOf(mark=half), projection="all", rows="none")
        for _ in range(ROUNDS):
            for point, took in seconds.items():
                began = time.perf_counter()
                state = await bulk.replay.state(scope, as_of=AsOf(mark=point), projection="all", rows="none")
                took.append((time.perf_counter() - began) / state.events * 1e6)
    whole, part = statistics.median(seconds[mark]), statistics.median(seconds[half])
    return Figure.ratio("bulk-replay.growth", whole, part, "us/event", _GROWTH, "less")


def _seconds(replay: Callable[[], Awaitable[ReplayedState]]) -> Callable[[int], Awaitable[float]]:
    async def measured(_: int) -> float:
        began = time.perf_counter()
        await replay()
        return time.perf_counter() - began

    return measured
