"""What a scheduler's tick costs: ten thousand schedules that are due are found and claimed, beside bare SQL doing as much."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from bench.figure import Figure, paired
from bench.pipeline_testbed import PipelineTestbed, open_pipeline_testbed
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.handlers.port import Outcome, PlatformJobs, SlotRun
from noetl.services.schedule.rows import DUE_COLUMNS
from noetl.services.schedule.scheduler import LIMITS, Scheduler
from noetl.services.schedule.spec import Named
from noetl.testing.samples.drafts import PRODUCER

SCHEDULES = 10_000
ROUNDS = 5
TOGETHER = 1_000

# The same rows without events, streams and policies: what a scheduler would have that keeps no ledger.
_TABLES = """
CREATE TABLE noetl.bare_schedule (LIKE noetl.schedule INCLUDING ALL) WITH (fillfactor = 70);
CREATE TABLE noetl.bare_slot (LIKE noetl.cron_slot INCLUDING ALL) WITH (fillfactor = 70);
INSERT INTO noetl.bare_schedule SELECT * FROM noetl.schedule;
"""
_FIND = f"SELECT {DUE_COLUMNS} FROM noetl.bare_schedule AS c WHERE next_due <= now() ORDER BY next_due"
_CLAIM = """
INSERT INTO noetl.bare_slot (tenant_id, organization_id, schedule_id, plan_time, status, attempt, max_attempts, manual,
    execution_id, runner, lease_token, lease_until, last_heartbeat, started_at)
SELECT $3, $4, s.id, s.plan, 'RUNNING', 1, 3, false, 1, 'bench', gen_random_uuid(), now() + interval '5 minutes', now(),
    now() FROM unnest($1::uuid[], $2::timestamptz[]) AS s (id, plan)
"""
_MOVE = """
UPDATE noetl.bare_schedule AS s SET next_plan = n.plan, next_due = n.plan, last_plan = s.next_plan,
    version = s.version + 1
FROM unnest($1::uuid[], $2::timestamptz[]) AS n (id, plan)
WHERE s.tenant_id = $3 AND s.organization_id = $4 AND s.schedule_id = n.id
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure one look at schedules that are all due, until the lease of each is written, in a process like a server's."""
    del wanted
    async with open_pipeline_testbed(worker=False) as on:
        own, ids = on.runtime, on.runtime.ids
        scope = (own.scope.tenant_id, own.scope.organization_id)
        scheduler = Scheduler(own.database, own.ledger, ids.mint_many, PRODUCER, {"playbook": _nothing}, PlatformJobs())
        names = [Named(name=f"schedule {number}").schedule_id(own.scope) for number in range(SCHEDULES)]
        await _tell(on, [(name, _created(name, number)) for number, name in enumerate(names)])
        floor = await on.bare()
        await floor.execute(_TABLES)

        async def ours(number: int) -> float:
            due = _moment(number)
            await _tell(on, [(name, Said("schedule.resumed", {"next_plan": time_text(due)})) for name in names])
            await floor.execute("VACUUM ANALYZE noetl.schedule, noetl.cron_slot, noetl.stream")
            began = time.perf_counter()
            held = 0
            while found := await scheduler.claim(LIMITS.page):
                held += len(found)
            seconds = time.perf_counter() - began
            assert held == SCHEDULES, f"{held} of {SCHEDULES} slots were claimed"
            return seconds

        async def bare(number: int) -> float:
            await floor.execute("UPDATE noetl.bare_schedule SET next_plan = $1, next_due = $1", _moment(number))
            await floor.execute("VACUUM ANALYZE noetl.bare_schedule, noetl.bare_slot")
            began = time.perf_counter()
            async with floor.transaction():
                rows = await floor.fetch(_FIND)
                found, due = [row["schedule_id"] for row in rows], [row["next_plan"] for row in rows]
                await floor.execute(_CLAIM, found, due, *scope)
                await floor.execute(_MOVE, found, [one + timedelta(hours=12) for one in due], *scope)
            return time.perf_counter() - began

        await ours(-1)
        await bare(-1)
        mine, base, value = await paired(ours, bare, ROUNDS)
        await floor.close()
        return [Figure.of("cron.tick", value, mine, base, "s", 5.0, "less")]


async def _nothing(slot: SlotRun) -> Outcome:
    return Outcome()


def _moment(number: int) -> datetime:
    """Return a moment that has just been reached, another one for each round."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60 - number)


def _created(schedule_id: str, number: int) -> Said:
    meta = {
        "schedule_id": schedule_id,
        "name": f"schedule {number}",
        "kind": "playbook",
        "scope_kind": "global",
        "scope_id": "global",
        # Hundreds of expressions, all of them due again in half a day or so.
        "expression": f"{number % 60} {(datetime.now(UTC).hour + 10 + number // 60 % 4) % 24} * * *",
        "timezone": ("UTC", "Europe/Berlin", "Africa/Lagos")[number % 3],
        "mode": "latest_only",
        "delay_seconds": 0.0,
        "catch_up_seconds": 86_400.0,
        "max_plans_per_tick": 10,
        "run_timeout_seconds": 120.0,
        "stale_timeout_seconds": 300.0,
        "heartbeat_seconds": 30.0,
        "max_attempts": 3,
        "allow_stale_reentry": True,
        "next_plan": "2999-01-01T00:00:00Z",
    }
    target = {"path": "jobs/nightly", "workload": {}}
    return Said("schedule.created", meta, context={"target": target, "retry_backoff": [60.0, 300.0, 900.0]})


async def _tell(on: PipelineTestbed, said: list[tuple[str, Said]]) -> None:
    drafts = ScheduleDrafts(on.runtime.ids.mint_many, PRODUCER)
    for start in range(0, len(said), TOGETHER):
        told = [Told(on.runtime.scope, name, None, (one,)) for name, one in said[start : start + TOGETHER]]
        await on.runtime.ledger.transact(Transition(tuple(drafts.appends(told))))
