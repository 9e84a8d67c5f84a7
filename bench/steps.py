"""What a step costs: trivial steps one after another and many small executions at once, beside as many bare commits.

A step without work is passed in the decision that enters it; the figures of `worker` are of steps that go to a worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from bench.engine_testbed import EngineTestbed, chain, open_engine_testbed
from bench.figure import Figure, alternating

STEPS = 200
EXECUTIONS = 200
CLIENTS = 16
ROUNDS = 5
IDLE, WORKING = "{kind: noop}", "{kind: noop, input: {some: work}}"

_INSERT = "INSERT INTO noetl.bare_commit (execution_id, step) VALUES ($1, $2)"


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure on one embedded server with the settings it ships with."""
    measures = {
        "steps.sequential": (_sequential, IDLE),
        "steps.concurrent": (_concurrent, IDLE),
        "steps.worker_sequential": (_sequential, WORKING),
        "steps.worker_concurrent": (_concurrent, WORKING),
    }
    async with open_engine_testbed() as testbed:
        owner = await testbed.bare()
        await owner.execute("CREATE TABLE noetl.bare_commit (execution_id bigint, step integer)")
        await owner.close()
        return [await measure(name, testbed, tool) for name in wanted for measure, tool in [measures[name]]]


async def _sequential(name: str, testbed: EngineTestbed, tool: str) -> Figure:
    entry = await testbed.register(chain(name, STEPS, tool))

    async def ours(_number: int) -> float:
        return await testbed.timed(entry)

    async def floor(number: int) -> float:
        connection = await testbed.bare()
        began = time.perf_counter()
        for step in range(STEPS):
            await connection.execute(_INSERT, number, step)
        seconds = time.perf_counter() - began
        await connection.close()
        return seconds

    await ours(0)
    mine, bare = await alternating(ours, floor, ROUNDS)
    return Figure.ratio(name, mine, bare, "s", 3.0, "less")


async def _concurrent(name: str, testbed: EngineTestbed, tool: str) -> Figure:
    entry = await testbed.register(chain(name, 3, tool))

    async def ours(_number: int) -> float:
        return EXECUTIONS * 3 / await testbed.timed(entry, EXECUTIONS)

    async def floor(_number: int) -> float:
        pool = await testbed.bare_pool(CLIENTS)
        left = iter(range(EXECUTIONS * 3))

        async def client() -> None:
            async with pool.acquire() as connection:
                for number in left:
                    await connection.execute(_INSERT, number, 0)

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        seconds = time.perf_counter() - began
        await pool.close()
        return EXECUTIONS * 3 / seconds

    await ours(0)
    mine, bare = await alternating(ours, floor, ROUNDS)
    return Figure.ratio(name, mine, bare, "steps/s", 0.3, "more")
