"""How fast events get into the ledger, beside bare inserts into the same table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from bench.database_testbed import SCOPE, DatabaseTestbed, open_database_testbed
from bench.figure import Figure, alternating
from noetl.model.event import Draft
from noetl.model.stream import Stream, loop_stream

ROUNDS = 9
BATCHES = 40
APPENDERS = 64
EACH = 25


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure batches of 100 and 64 concurrent appenders of single events."""
    measures = {"append.batch100": _batch, "append.concurrent64": _concurrent}
    async with open_database_testbed() as on:
        found = []
        for name in wanted:
            await measures[name](on, 2)  # warms caches and plans; not counted
            found.append(await measures[name](on, ROUNDS))
        return found


async def _batch(on: DatabaseTestbed, rounds: int) -> Figure:
    async def ours(_: int) -> float:
        stream, work = batches(on)
        began = time.perf_counter()
        for batch in work:
            await on.ledger.append(stream, batch)
        return BATCHES * 100 / (time.perf_counter() - began)

    async def floor(_: int) -> float:
        bare = [on.bare_columns(batch) for batch in batches(on)[1]]
        began = time.perf_counter()
        for columns in bare:
            await on.insert_bare(columns)
        return BATCHES * 100 / (time.perf_counter() - began)

    return Figure.ratio("append.batch100", *await alternating(ours, floor, rounds), "events/s", 0.7, "more")


async def _concurrent(on: DatabaseTestbed, rounds: int) -> Figure:
    async def ours(_: int) -> float:
        work = [items(on, EACH) for _ in range(APPENDERS)]
        began = time.perf_counter()
        await asyncio.gather(*(one_by_one(on, stream, drafts) for stream, drafts in work))
        return APPENDERS * EACH / (time.perf_counter() - began)

    async def floor(_: int) -> float:
        rows = [on.bare_columns([draft]) for draft in items(on, 400)[1]]
        began = time.perf_counter()
        for columns in rows:
            await on.insert_bare(columns)
        return len(rows) / (time.perf_counter() - began)

    return Figure.ratio("append.concurrent64", *await alternating(ours, floor, rounds), "events/s", 5.0, "more")


async def one_by_one(on: DatabaseTestbed, stream: Stream, drafts: list[Draft]) -> None:
    """Append drafts one after the other."""
    for draft in drafts:
        await on.ledger.append(stream, [draft])


def batches(on: DatabaseTestbed) -> tuple[Stream, list[list[Draft]]]:
    """Make a stream's events in batches of a hundred."""
    stream, drafts = items(on, BATCHES * 100)
    return stream, [drafts[start : start + 100] for start in range(0, len(drafts), 100)]


def items(on: DatabaseTestbed, count: int) -> tuple[Stream, list[Draft]]:
    """Make events as a loop has them: ids, a step, a small item and some context, about 300 bytes of JSON."""
    execution_id, loop_id = on.ids.mint(), on.ids.mint()
    drafts = [
        on.drafts.loop_item(
            execution_id,
            loop_id,
            index,
            status="dispatched",
            current_item={
                "patient_id": f"patient-{index:06d}",
                "facility": "north",
                "page": index % 7,
                "kind": "vitals",
            },
            context={"collection_ref": "noetl://tenant/default/org/default/payloads/sha256/" + "ab" * 32},
            meta={"worker_slot": index % 16, "iter_key": f"key-{index:06d}"},
        )
        for index in range(count)
    ]
    return loop_stream(SCOPE, execution_id, loop_id), drafts
