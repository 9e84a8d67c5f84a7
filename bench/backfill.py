"""What queueing a backfill costs: a hundred thousand partitions, beside a bare bulk insert of as many rows."""

from __future__ import annotations

import time
from collections.abc import Collection

from bench.figure import Figure, paired
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from noetl.pipelines.changes.backfills.preview import BackfillPlan
from noetl.pipelines.changes.context import Located
from noetl.pipelines.changes.engine import Changes
from noetl.runtime.assembly.changes import changes_of

PARTITIONS = 100_000
ROUNDS = 5
# Days that have come and gone, one partition each: more than two centuries of them.
FIRST, LAST = "1752-03-18", "2026-01-01"
DAG = """
name: history
jobs:
  - {name: days, runtime: ecs_platform, operator: noop, partition_by: [day], max_attempts: 1}
publish: [days]
"""

_TABLE = "CREATE TABLE noetl.bare_partition (LIKE noetl.backfill_partition INCLUDING ALL)"
_INSERT = """
INSERT INTO noetl.bare_partition (tenant_id, organization_id, backfill_id, ordinal, partition_key)
SELECT $1, $2, $3, k.place - 1, k.partition_key FROM unnest($4::text[]) WITH ORDINALITY AS k (partition_key, place)
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure queueing in turn with the bare insert, and the preview by itself."""
    found: list[Figure] = []
    async with open_pipeline_testbed() as testbed:
        await testbed.deploy(DAG)
        changes = changes_of(testbed.runtime, testbed.pipelines, "bench")
        owner = await testbed.bare()
        await owner.execute(_TABLE)
        seconds, located, plan = await _previewed(testbed, changes)
        if "backfill.queue" in wanted:

            async def ours(_number: int) -> float:
                return await _queued(testbed, changes, located, plan)

            async def bare(number: int) -> float:
                await owner.execute("TRUNCATE noetl.bare_partition")
                own = testbed.runtime.scope
                began = time.perf_counter()
                await owner.execute(_INSERT, own.tenant_id, own.organization_id, number, list(plan.keys))
                return time.perf_counter() - began

            await ours(-1)
            mine, base, value = await paired(ours, bare, ROUNDS)
            found.append(Figure.of("backfill.queue", value, mine, base, "s", 3, "less"))
        if "backfill.preview_s" in wanted:
            found.append(Figure.plain("backfill.preview_s", seconds, "s", 2, "less"))
        await owner.close()
    return found


async def _previewed(testbed: PipelineTestbed, changes: Changes) -> tuple[float, Located, BackfillPlan]:
    began = time.perf_counter()
    located, plan = await changes.plan_backfill(testbed.runtime.scope, "days", start=FIRST, end=LAST)
    seconds = time.perf_counter() - began
    assert plan.total == PARTITIONS, plan.total
    return seconds, located, plan


async def _queued(testbed: PipelineTestbed, changes: Changes, located: Located, plan: BackfillPlan) -> float:
    """Queue a backfill, which is timed, and give it up again."""
    scope = testbed.runtime.scope
    began = time.perf_counter()
    one = await changes.backfills.request(scope, located, plan, by="bench")
    seconds = time.perf_counter() - began
    assert (one.status, one.queued) == ("running", plan.total)
    await changes.backfills.cancel(scope, one.backfill_id, by="bench")
    return seconds
