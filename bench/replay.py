"""How fast a past state is rebuilt, beside the bare reading and decoding of the same rows."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import orjson

from bench.database_testbed import SCOPE, DatabaseTestbed, open_database_testbed
from bench.figure import Figure, alternating
from bench.history import long_execution
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.rows import COLUMNS, JSON_PLACES
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.replay import Replay
from noetl.model.stream import execution_stream

EVENTS = int(os.environ.get("BENCH_EVENTS", "1000000"))
MEMORY_EVENTS = int(os.environ.get("BENCH_MEMORY_EVENTS", "5000000"))
ROUNDS = 5


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure a full replay, one from a snapshot, and the memory of a much longer one."""
    async with open_database_testbed() as on:
        found = []
        if {"replay.full", "replay.snapshot"} & set(wanted):
            execution_id = await long_execution(on, EVENTS)
            replay = _replay(on)
            if "replay.full" in wanted:
                found.append(await _full(on, replay, execution_id))
            if "replay.snapshot" in wanted:
                await replay.snapshots.take(SCOPE, execution_id)
                found.append(await _from_snapshot(replay, execution_id))
        if "replay.memory" in wanted:
            found.append(await _memory(on, await long_execution(on, MEMORY_EVENTS)))
        return found


def _replay(on: DatabaseTestbed) -> Replay:
    payloads = open_object_store(Connection(path=Path(on.server.status().home) / "payloads"), compress=True)
    store = PostgresProjectionStore(on.database)
    history = History(on.database, on.ledger, payloads)
    return Replay(history, payloads, store, FoldRegistry(), Upcasters(), database=on.database)


async def _full(on: DatabaseTestbed, replay: Replay, execution_id: int) -> Figure:
    shard = execution_stream(SCOPE, execution_id).shard

    async def ours(_: int) -> float:
        began = time.perf_counter()
        state = await replay.state(SCOPE, execution_id, projection="all", rows="none", use_snapshots=False)
        assert state.events >= EVENTS
        return time.perf_counter() - began

    async def floor(_: int) -> float:
        began = time.perf_counter()
        await _bare_read(on, execution_id, shard)
        return time.perf_counter() - began

    return Figure.ratio("replay.full", *await alternating(ours, floor, ROUNDS), "s", 3.0, "less")


async def _bare_read(on: DatabaseTestbed, execution_id: int, shard: int) -> None:
    """Read the same columns by a cursor and decode the JSON ones; keep nothing."""
    query = f"SELECT {COLUMNS} FROM noetl.event WHERE execution_id = $1 AND shard = $2 ORDER BY position"
    loads = orjson.loads
    async with on.bare.transaction():
        cursor = await on.bare.cursor(query, execution_id, shard)
        while rows := await cursor.fetch(5_000):
            for row in rows:
                for place in JSON_PLACES:
                    text = row[place]
                    if text is not None:
                        loads(text)


async def _from_snapshot(replay: Replay, execution_id: int) -> Figure:
    async def ours(_: int) -> float:
        began = time.perf_counter()
        state = await replay.state(SCOPE, execution_id, projection="all", rows="kept")
        assert state.snapshot is not None
        return time.perf_counter() - began

    async def floor(_: int) -> float:
        began = time.perf_counter()
        await replay.state(SCOPE, execution_id, projection="all", rows="none", use_snapshots=False)
        return time.perf_counter() - began

    return Figure.ratio("replay.snapshot", *await alternating(ours, floor, ROUNDS), "s", 0.1, "less")


async def _memory(on: DatabaseTestbed, execution_id: int) -> Figure:
    """Replay in a process of its own and ask it for the most memory it ever had."""
    command = [sys.executable, "-m", "bench.replay", on.server.url(), str(execution_id)]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["events"] >= MEMORY_EVENTS
    return Figure.plain("replay.memory", told["megabytes"], "MB", 400.0, "less")


async def _replay_once(url: str, execution_id: int) -> None:
    import resource

    from noetl.kernel.ledger.postgres.database import Database
    from noetl.kernel.ledger.postgres.ledger import PostgresLedger
    from noetl.kernel.payloads.memory import MemoryPayloadStore
    from noetl.kernel.projections.stores.memory import MemoryProjectionStore

    database = Database(url, as_roles=True)
    payloads = MemoryPayloadStore()
    history = History(database, PostgresLedger(database), payloads)
    replay = Replay(history, payloads, MemoryProjectionStore(), FoldRegistry(), Upcasters(), database=database)
    state = await replay.state(SCOPE, execution_id, projection="all", rows="none", use_snapshots=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"events": state.events, "megabytes": peak}))
    await database.close()


if __name__ == "__main__":
    asyncio.run(_replay_once(sys.argv[1], int(sys.argv[2])))
