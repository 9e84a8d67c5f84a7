"""What the chain of links costs an append: the same appends with leaves and links, and without both, in turn."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection

from bench.append import APPENDERS, BATCHES, EACH, batches, items, one_by_one
from bench.database_testbed import DatabaseTestbed, open_database_testbed
from bench.figure import Figure, paired
from noetl.kernel.ledger import batch, normalizer
from noetl.runtime.postgres.migrations import SCHEMA

ROUNDS = 15
_LINKING = ("add_link", "link_appends")


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure batches of 100 and 64 concurrent appenders, each with and without the chain."""
    measures: dict[str, Callable[[DatabaseTestbed], Awaitable[float]]] = {
        "chain.batch100": _batch,
        "chain.concurrent64": _concurrent,
    }
    async with open_database_testbed() as on:
        found = []
        for name in wanted:
            measure = measures[name]

            async def chained(_: int, measure: Callable[[DatabaseTestbed], Awaitable[float]] = measure) -> float:
                await _chain(on)
                return await measure(on)

            async def unchained(_: int, measure: Callable[[DatabaseTestbed], Awaitable[float]] = measure) -> float:
                await _unchain(on)
                return await measure(on)

            await paired(chained, unchained, 2)  # warms caches and plans; not counted
            ours, floor, ratio = await paired(chained, unchained, ROUNDS)
            found.append(Figure.of(name, ratio, ours, floor, "events/s", 0.95, "more"))
        return found


async def _chain(on: DatabaseTestbed) -> None:
    vars(batch)["leaves"] = normalizer.leaves
    for name in _LINKING:
        await on.bare.execute((SCHEMA / f"functions/{name}.sql").read_text())
    await _settle(on)


async def _unchain(on: DatabaseTestbed) -> None:
    """Let appends make neither leaves nor links."""
    vars(batch)["leaves"] = lambda stream, shard, rows: b""
    for name in _LINKING:
        text = (SCHEMA / f"functions/{name}.sql").read_text()
        await on.bare.execute(re.sub(r"AS \$\$.*?\$\$;", "AS $$ BEGIN END $$;", text, flags=re.DOTALL))
    await _settle(on)


async def _settle(on: DatabaseTestbed) -> None:
    """Append a little first, so that no round pays for the functions that were just changed."""
    for _ in range(3):
        stream, (drafts, *_) = batches(on)
        await on.ledger.append(stream, drafts)
        stream, drafts = items(on, 1)
        await on.ledger.append(stream, drafts)


async def _batch(on: DatabaseTestbed) -> float:
    stream, work = batches(on)
    began = time.perf_counter()
    for drafts in work:
        await on.ledger.append(stream, drafts)
    return BATCHES * 100 / (time.perf_counter() - began)


async def _concurrent(on: DatabaseTestbed) -> float:
    work = [items(on, EACH) for _ in range(APPENDERS)]
    began = time.perf_counter()
    await asyncio.gather(*(one_by_one(on, stream, drafts) for stream, drafts in work))
    return APPENDERS * EACH / (time.perf_counter() - began)
