"""Executions that would go on for ever: others do not pay for them, they can be cancelled, and their time comes to an end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed

from noetl.api import execution_list
from noetl.cli.executions.show import shown_execution
from noetl.engine.dispatch.facts import postgres as facts
from noetl.engine.dispatch.open_executions import postgres as open_executions
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.catalogue import ENDING
from noetl.model.ids import MAX_ID, ROOT_ID_LIMIT
from noetl.runtime.commands import execution as named
from noetl.runtime.commands.execution_list import listed_executions
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.short_leases import open_short_leased, until

pytestmark = pytest.mark.service

LONG = 3_000
"""Events of the ring before others are asked about."""
FEW = 20
"""Rows that may be read of executions: there are two of them, with some ten events that matter."""
COMMAND_STREAMS = """
INSERT INTO noetl.stream (tenant_id, organization_id, stream_id, version, shard, execution_id)
SELECT 'default', 'default', 'execution/' || $1::bigint || '/command/' || number, 1, 0, $1
FROM generate_series(1, $2::integer) AS number
"""
RING = playbook(
    """
    executor: {spec: {policy: {limits: {steps_without_work: 1000000}}}}
    workflow:
      - step: a
        tool: {kind: noop}
        next: {arcs: [{step: b}]}
      - step: b
        tool: {kind: noop}
        next: {arcs: [{step: a}]}
    """,
    "faults/ring",
)
LOOP = playbook(
    """
    workflow:
      - step: each
        loop: {in: [1, 2, 3], iterator: row}
        tool: {kind: noop}
    """,
    "faults/loop",
)
SLOW = playbook(
    """
    executor: {spec: {policy: {limits: {seconds: 1s}}}}
    workflow:
      - step: wait
        tool: {kind: shell, cmds: "sleep 600"}
    """,
    "faults/slow",
)


async def rows_read(database: Database, testbed: EngineTestbed, query: str, *values: Any) -> int:
    """Return how many rows of events and streams a query looks at."""
    async with database.transaction(testbed.scope) as connection:
        told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *values)

    def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield plan
        for below in plan.get("Plans", ()):
            yield from nodes(below)

    scans = [
        node
        for node in nodes(json.loads(told)[0]["Plan"])
        if str(node.get("Relation Name", "")).startswith(("event", "stream"))
    ]
    counts = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return int(sum(node["Actual Loops"] * sum(node.get(name, 0) for name in counts) for node in scans))


async def little_is_read(database: Database, testbed: EngineTestbed, ring: int, loop: int) -> None:
    """Hold every question that commands and reapers ask about executions to the few events that answer it."""
    page = (ROOT_ID_LIMIT, MAX_ID, 200, list(ENDING))
    questions: dict[str, tuple[Any, ...]] = {
        execution_list._PAGE: page,
        named._LAST: (ROOT_ID_LIMIT, False),
        open_executions._HEAD: (ring,),
        open_executions._WAITED: (loop,),
        facts._TAKES: (ring, loop),
    }
    for question, values in questions.items():
        assert await rows_read(database, testbed, question, *values) < FEW, question


async def test_nobody_pays_for_a_long_execution_beside_and_it_is_cancelled_unread(testbed: EngineTestbed) -> None:
    """INV-163."""
    process = testbed.process(slots=2, reaps=False)
    await process.ready()
    loop = await testbed.start(LOOP)
    await testbed.finished(loop)
    ring = await testbed.start(RING)

    async def is_long() -> bool:
        query = "SELECT version FROM noetl.stream WHERE stream_id = $1"
        return bool(await testbed.effects.fetchval(query, f"execution/{ring}") > LONG)

    await until(is_long, "a long execution")
    # As if each of its steps had been claimed by a worker.
    await testbed.effects.execute(COMMAND_STREAMS, ring, LONG)
    async with open_short_leased(testbed.url, testbed.home, role="asker") as asking:
        runtime = asking.runtime
        (line, *_) = runtime.projections.lines
        before = await line.store.checkpoints()
        listed = await listed_executions(runtime, None, None, 10)
        assert [(one["execution_id"], one["status"]) for one in listed] == [
            (str(ring), "RUNNING"),
            (str(loop), "COMPLETED"),
        ]
        assert [one["path"] for one in await listed_executions(runtime, "COMPLETED", "faults/l", 10)] == ["faults/loop"]
        (run,) = (await shown_execution(runtime, testbed.scope, loop)).runs
        assert (run.rows, run.done, run.failed) == (3, 3, 0)
        assert await line.store.checkpoints() == before, "nothing was projected for it"

        await little_is_read(runtime.database, testbed, ring, loop)
        assert await asking.engine.cancel(testbed.scope, ring, reason="enough", by="test") == [ring]
        await little_is_read(runtime.database, testbed, ring, loop)
    (end,) = await testbed.effects.fetch(
        "SELECT event_type, meta ->> 'by', meta ->> 'swallowed' FROM noetl.event"
        " WHERE execution_id = $1 AND event_type = ANY ($2)",
        ring,
        list(ENDING),
    )
    assert tuple(end) == ("execution.cancelled", "test", None), "its events were not read, so nothing was counted"
    assert await testbed.last_event(ring) == "execution.cancelled"


async def test_time_goes_on_for_an_execution_whose_process_was_killed(testbed: EngineTestbed) -> None:
    """INV-162."""
    process = testbed.process(slots=1, reaps=True)
    await process.ready()
    execution_id = await testbed.start(SLOW)

    async def claimed() -> Any:
        return await testbed.effects.fetchval("SELECT worker FROM noetl.command WHERE execution_id = $1", execution_id)

    await until(claimed, "somebody at work")
    process.close()

    async def ended() -> bool:
        await testbed.engine.reaper.sweep()
        return (await testbed.engine.executions.state(testbed.scope, execution_id)).ended

    await until(ended, "an end of its time")
    state = await testbed.engine.executions.state(testbed.scope, execution_id)
    assert (state.status, state.ended_with) == ("FAILED", "execution.failed")
    assert state.error == (
        "the limit seconds is reached in wait: the execution had not ended 1 seconds after its request;"
        " let it do less, or raise executor.spec.policy.limits.seconds above 1"
    )
    await testbed.assert_clean()
