"""How fast projections follow the ledger: beside a replay of the same events, with two projectors, and under a steady load.

Projectors are `noetl projector` processes, as they run; a projector's rate is counted from its first shard on, so its start
is no part of it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.bulk_history import many_executions
from bench.database_testbed import SCOPE, DatabaseTestbed, open_database_testbed
from bench.figure import Figure
from noetl.kernel.ledger.archive.retention import ensure_partitions
from noetl.kernel.ledger.history import History
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.as_of import AsOf
from noetl.kernel.replay.replay import Replay
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, loop_stream
from noetl.runtime.settings.stores import EventStore

EXECUTIONS: Final = int(os.environ.get("BENCH_EXECUTIONS", "3000"))
"""A hundred events each: enough that how a run begins, and who is the last to end it, hardly count."""
ROUNDS: Final = 5
LOAD_EVENTS: Final = 2_000
"""Events per second of the steady load."""
LOAD_SECONDS: Final = 8
_TICKS: Final = 20
_LOOK_SECONDS: Final = 0.01
_WATCH_SECONDS: Final = 0.03
"""How often one looks whether all is projected: seldom, for who looks takes from the cores that are measured."""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure the rate of one projector, what a second one brings, and the lag under load."""
    found = []
    async with open_database_testbed() as on:
        # A process that starts makes the partitions that are missing, for which it would wait at the gate.
        await ensure_partitions(on.database, EventStore().partitions_ahead_months)
        if {"projector.rate", "projector.scaling"} & set(wanted):
            events = await many_executions(on.bare, on.ids.mint, EXECUTIONS)
            found += await _rates(on, wanted, events)
        if "projector.lag_p95_ms" in wanted:
            found.append(await _lag(on))
    return found


async def _rates(on: DatabaseTestbed, wanted: Collection[str], events: int) -> list[Figure]:
    head = await on.ledger.head()
    replay, one, two = [], [], []
    for number in range(ROUNDS + 1):
        replay.append(await _replayed(on, head, events))
        one.append(await _projected(on, head, events, 1))
        if "projector.scaling" in wanted:
            two.append(await _projected(on, head, events, 2))
        if not number:  # the first round warms caches and plans
            replay, one, two = [], [], []
    found = []
    if "projector.rate" in wanted:
        rate, floor = statistics.median(one), statistics.median(replay)
        found.append(Figure.ratio("projector.rate", rate, floor, "events/s", 0.6, "more"))
    if "projector.scaling" in wanted:
        times = statistics.median(both / alone for both, alone in zip(two, one, strict=True))
        found.append(
            Figure.of(
                "projector.scaling", times, statistics.median(two), statistics.median(one), "events/s", 1.5, "more"
            )
        )
    return found


async def _replayed(on: DatabaseTestbed, head: Mark, events: int) -> float:
    payloads = open_object_store(Connection(path=Path(on.server.status().home) / "payloads"), compress=True)
    store = PostgresProjectionStore(on.database)
    history = History(on.database, on.ledger, payloads)
    replay = Replay(history, payloads, store, FoldRegistry(), Upcasters(), database=on.database)
    began = time.perf_counter()
    state = await replay.state(SCOPE, as_of=AsOf(mark=head), projection="all", rows="none", use_snapshots=False)
    assert state.events == events
    return events / (time.perf_counter() - began)


async def _projected(on: DatabaseTestbed, head: Mark, events: int, projectors: int) -> float:
    """Let projectors begin at the same moment, with everything before them, and return their rate together."""
    await _forget(on)
    gate = on.bare.transaction()
    await gate.start()
    # Whoever holds a shard reads it at once; nobody reads before the table is free.
    await on.bare.execute("LOCK TABLE noetl.event IN ACCESS EXCLUSIVE MODE")
    async with _projectors(on, projectors):
        began = time.perf_counter()
        await gate.commit()
        while not (await _checkpoints(on)).covers(head):  # noqa: ASYNC110 - other processes move them
            await asyncio.sleep(_WATCH_SECONDS)
        return events / (time.perf_counter() - began)


async def _lag(on: DatabaseTestbed) -> Figure:
    """Append at a steady rate and note for each append how long after it its events were projected."""
    waiting: list[tuple[int, int, float]] = []
    waits: list[float] = []
    async with _projectors(on, 1):
        began = time.perf_counter()
        appending = set[asyncio.Task[None]]()
        for tick in range(LOAD_SECONDS * _TICKS):
            while (left := began + tick / _TICKS - time.perf_counter()) > 0:
                await asyncio.sleep(min(left, _LOOK_SECONDS))
                await _note(on, waiting, waits)
            appending.add(asyncio.create_task(_append(on, waiting)))
        await asyncio.gather(*appending)
        while waiting:
            await _note(on, waiting, waits)
    return Figure.plain("projector.lag_p95_ms", statistics.quantiles(waits, n=20)[18] * 1000, "ms", 500.0, "less")


async def _append(on: DatabaseTestbed, waiting: list[tuple[int, int, float]]) -> None:
    execution_id, loop_id = on.ids.mint_many(2)
    started = on.drafts.loop(execution_id, loop_id, "loop.started")
    items = [on.drafts.loop_item(execution_id, loop_id, index) for index in range(LOAD_EVENTS // _TICKS - 1)]
    appended = await on.ledger.append(loop_stream(SCOPE, execution_id, loop_id), [started, *items])
    waiting.append((appended.shard, appended.last_position, time.perf_counter()))


async def _note(on: DatabaseTestbed, waiting: list[tuple[int, int, float]], waits: list[float]) -> None:
    at, now = (await _checkpoints(on)).positions, time.perf_counter()
    waits += [now - since for shard, position, since in waiting if at[shard] >= position]
    waiting[:] = [one for one in waiting if at[one[0]] < one[1]]


async def _checkpoints(on: DatabaseTestbed) -> Mark:
    return Mark(
        [row[0] for row in await on.bare.fetch("SELECT position FROM noetl.projection_checkpoint ORDER BY shard")]
    )


async def _forget(on: DatabaseTestbed) -> None:
    await on.bare.execute("TRUNCATE noetl.projection")
    await on.bare.execute("UPDATE noetl.projection_checkpoint SET position = 0, folds = NULL, failure = NULL")


@asynccontextmanager
async def _projectors(on: DatabaseTestbed, count: int) -> AsyncIterator[None]:
    """Run so many projectors for the time of the block, each with its fair share of the shards."""
    with tempfile.TemporaryDirectory(prefix="noetl-bench-projectors-") as folder:
        environ = os.environ | {"NOETL_DATABASE_URL": on.server.url(), "NOETL_HOME": folder}
        started = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "noetl", "projector"),
                cwd=folder,
                env=environ | {"NOETL_SHARD_ID": f"noetl-projector-{number}"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            for number in range(count)
        ]
        try:
            await asyncio.gather(*(_until_it_has(process, SHARD_COUNT // count) for process in started))
            yield
        finally:
            for process in started:
                process.terminate()
            await asyncio.gather(*(process.communicate() for process in started))


async def _until_it_has(process: asyncio.subprocess.Process, share: int) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        if line.startswith(b"shards: ") and len(line.split()) == share + 1:
            return
    raise RuntimeError("a projector ended by itself")
