"""What handing out and ending a task costs: sixteen clients on tasks that do nothing, beside bare claim and complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from bench.figure import Figure, paired
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from noetl.engine.dispatch.drafts import Drafting
from noetl.model.task import TaskReport
from noetl.pipelines.plan.identity import task_id
from noetl.pipelines.plan.wanted_values import WantedTask
from noetl.pipelines.tasks.routing.creation import Creating
from noetl.testing.samples.drafts import PRODUCER

TASKS = 2_000
CLIENTS = 16
ROUNDS = 5
DAG = """
name: nothing
jobs:
  - {name: idle, runtime: ecs_platform, operator: noop, outputs: 0, max_attempts: 1}
"""

_TABLE = """
CREATE TABLE noetl.bare_task (task_id integer PRIMARY KEY, status text NOT NULL, worker text, token uuid,
    lease_until timestamptz, ended_at timestamptz) WITH (fillfactor = 70);
CREATE INDEX ON noetl.bare_task (task_id) WHERE status = 'Queued';
"""
_FILL = "INSERT INTO noetl.bare_task SELECT n, 'Queued' FROM generate_series(1, $1) AS n"
_CLAIM = """
UPDATE noetl.bare_task SET status = 'Running', worker = $1, token = gen_random_uuid(),
    lease_until = now() + interval '2 minutes'
WHERE task_id = (SELECT task_id FROM noetl.bare_task WHERE status = 'Queued' ORDER BY task_id LIMIT 1
                 FOR UPDATE SKIP LOCKED)
RETURNING task_id, token
"""
_COMPLETE = """
UPDATE noetl.bare_task SET status = 'Completed', ended_at = now() WHERE task_id = $1 AND token = $2
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure transitions per second; every one is a commit of its own for its client."""
    del wanted
    async with open_pipeline_testbed(worker=False) as testbed:
        deploying = asyncio.create_task(testbed.deploy(DAG))
        while not await _client(testbed, "builder", wait_seconds=10):
            continue
        await deploying
        owner = await testbed.bare()
        await owner.execute(_TABLE)
        await owner.close()

        async def ours(number: int) -> float:
            return await _ours(testbed, number)

        async def bare(_number: int) -> float:
            return await _bare(testbed)

        await ours(-1)
        mine, base, value = await paired(ours, bare, ROUNDS)
        return [Figure.of("tasks.rate", value, mine, base, "transitions/s", 0.3, "more")]


async def _ours(testbed: PipelineTestbed, number: int) -> float:
    """Create tasks, then let the clients work them off; only the latter is timed."""
    runtime, engine = testbed.runtime, testbed.pipelines.engine
    scope = runtime.scope
    version = await testbed.pipelines.dags.current(scope, "nothing")
    assert version is not None
    (row,) = await testbed.pipelines.dags.jobs(scope, version.dag_version_id)
    facts = await engine.jobs.get(scope, row.job_id)
    keys = [f"round:{number}:{place}" for place in range(TASKS)]
    wanted = [
        WantedTask(task_id=task_id(facts.generation, key), partition_key="all", dedupe_key=key, memo_key=key)
        for key in keys
    ]
    creating = Creating(runtime.database, runtime.ledger, runtime.payloads, Drafting(runtime.ids.mint_many, PRODUCER))
    made = await creating.create(scope, runtime.ids.mint(), facts, wanted)
    assert len(made) == TASKS
    began = time.perf_counter()
    done = await asyncio.gather(*(_client(testbed, f"client-{place}") for place in range(CLIENTS)))
    seconds = time.perf_counter() - began
    assert sum(done) == TASKS, f"{sum(done)} of {TASKS} tasks were done"
    return 2 * TASKS / seconds


async def _client(testbed: PipelineTestbed, name: str, wait_seconds: float = 0) -> int:
    tasks = testbed.pipelines.engine.tasks(testbed.runtime.scope)
    done = 0
    while grants := await tasks.claim(name, ("ecs_platform",), 1, 0 if done else wait_seconds):
        for grant in grants:
            await tasks.complete(grant, TaskReport(status="ok"))
            done += 1
    return done


async def _bare(testbed: PipelineTestbed) -> float:
    pool = await testbed.bare_pool(CLIENTS)
    await pool.execute("TRUNCATE noetl.bare_task")
    await pool.execute(_FILL, TASKS)
    await pool.execute("VACUUM ANALYZE noetl.bare_task")

    async def client(name: str) -> None:
        async with pool.acquire() as connection:
            while row := await connection.fetchrow(_CLAIM, name):
                await connection.execute(_COMPLETE, row["task_id"], row["token"])

    began = time.perf_counter()
    await asyncio.gather(*(client(f"client-{place}") for place in range(CLIENTS)))
    seconds = time.perf_counter() - began
    await pool.close()
    return 2 * TASKS / seconds
