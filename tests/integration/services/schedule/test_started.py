"""What schedules start: playbooks and sources of DAGs, once per moment; and the platform's own jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.model.stream import Scope
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.schedules import STANDING
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.handlers.port import PlatformJobs
from noetl.services.schedule.handlers.pruning import PRUNE_SLOTS, PRUNE_SPEC, PruneSlots
from noetl.services.schedule.handlers.starts import EmitSource, StartPlaybook
from noetl.services.schedule.planning import following
from noetl.services.schedule.rows import ScheduleRow, SlotRow
from noetl.services.schedule.scheduler import Scheduler
from noetl.services.schedule.spec import PLATFORM, Definition, Named, Spec
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

NIGHTLY = playbook(
    """
    workload: {size: 1}
    workflow:
      - step: only
        tool:
          kind: python
          code: "def main(size, planned): return {'size': size, 'planned': planned}"
          input: {size: "{{ workload.size }}", planned: "{{ workload.schedule.plan_time }}"}
    """,
    "jobs/nightly",
)
DAG = """
name: shop
jobs:
  - name: orders
    operator: made
    runtime: dispatcher
    source: {kind: cron, schedule: "%s", timezone: Europe/Berlin}
    unique_key: [id]
"""


@asynccontextmanager
async def scheduling(
    playbooks: Playbooks, tasks: TaskEngine | None = None, platform: PlatformJobs | None = None, meter: Any = None
) -> AsyncIterator[Scheduler]:
    """Give a scheduler whose slots run, on the engines of the test."""
    runtime = playbooks.runtime
    handlers: dict[Any, Any] = {"playbook": StartPlaybook(playbooks.engine)}
    if tasks is not None:
        handlers["source"] = EmitSource(tasks.runs)
    scheduler = Scheduler(
        runtime.database, runtime.ledger, runtime.ids.mint_many, PRODUCER, handlers, platform or PlatformJobs(),
        meter=meter,
    )  # fmt: skip
    scheduler.running.start()
    try:
        yield scheduler
    finally:
        await scheduler.running.stop()


async def behind(playbooks: Playbooks, row: ScheduleRow, span: timedelta) -> None:
    """Let a schedule go on with a moment in the past."""
    first = following(row.spec, row.changed_at - span)
    told = Told(row.scope, row.schedule_id, None, (Said("schedule.resumed", {"next_plan": time_text(first)}),))
    drafts = ScheduleDrafts(playbooks.runtime.ids.mint_many, PRODUCER)
    await playbooks.runtime.ledger.transact(Transition(tuple(drafts.appends([told]))))


async def ticked(scheduler: Scheduler, row: ScheduleRow) -> list[SlotRow]:
    """Do what is due and return the slots of a schedule."""
    await scheduler.tick()
    await scheduler.running.drain()
    return await scheduler.schedules.slots(row.scope, row.schedule_id)


def nightly(**spec: Any) -> Definition:
    return Definition(
        named=Named(name="nightly"),
        kind="playbook",
        target={"path": "jobs/nightly", "workload": {"size": 7}},
        spec=Spec(**{"expression": "rate(1 hour)", **spec}),
    )


async def test_a_playbook_is_started_with_its_workload_and_the_moment_it_was_planned_for(playbooks: Playbooks) -> None:
    await playbooks.worker()
    await playbooks.register(NIGHTLY)
    async with scheduling(playbooks) as scheduler:
        row, _ = await scheduler.schedules.put(playbooks.scope, nightly(), by="tests")
        await behind(playbooks, row, timedelta(hours=1))
        (slot,) = await ticked(scheduler, row)
    assert slot.run_id is not None
    state = await playbooks.finished(slot.run_id)
    assert await playbooks.data(state, "only") == {"size": 7, "planned": time_text(slot.plan_time)}


async def test_a_slot_that_is_run_again_starts_nothing_twice(playbooks: Playbooks) -> None:
    """INV-65."""
    await playbooks.worker()
    await playbooks.register(NIGHTLY)
    async with scheduling(playbooks) as scheduler:
        row, _ = await scheduler.schedules.put(playbooks.scope, nightly(), by="tests")
        await behind(playbooks, row, timedelta(hours=1))
        (held,) = await scheduler.claim(10) or []
        first = await scheduler.running._tried(held)
        again = await scheduler.running._tried(held)
        assert first[0] is not None
        assert again[0] is not None
        assert first[0].meta["run_id"] == again[0].meta["run_id"]
        scheduler.running.add(held)
        await scheduler.running.drain()
        (slot,) = await scheduler.schedules.slots(row.scope, row.schedule_id)
    assert str(slot.run_id) == first[0].meta["run_id"]
    await playbooks.finished(int(first[0].meta["run_id"]))


async def test_a_playbook_that_is_not_there_is_a_failed_attempt(playbooks: Playbooks) -> None:
    async with scheduling(playbooks) as scheduler:
        row, _ = await scheduler.schedules.put(playbooks.scope, nightly(), by="tests")
        await behind(playbooks, row, timedelta(hours=1))
        (slot,) = await ticked(scheduler, row)
    assert (slot.status, slot.error_code, slot.run_id) == ("FAILED", "not_found", None)
    assert slot.next_retry_at is not None


async def test_a_cron_source_follows_the_version_that_serves(
    playbooks: Playbooks, task_engine: TaskEngine, pipelines: TestedPipelines
) -> None:
    pipelines.made.given["orders"] = lambda work: [{"id": 1}]
    async with scheduling(playbooks, task_engine) as scheduler:
        await pipelines.deploy(DAG % "0 6 * * *")
        await scheduler.tick()
        row = await scheduler.schedules.get(playbooks.scope, "shop.orders")
        assert (row.kind, row.target, row.spec.timezone) == (
            "source",
            {"dag": "shop", "job": "orders"},
            "Europe/Berlin",
        )
        version = row.version
        await scheduler.tick()
        assert (await scheduler.schedules.get(playbooks.scope, "shop.orders")).version == version
        await behind(playbooks, row, timedelta(hours=30))
        (slot,) = await ticked(scheduler, row)
        assert slot.run_id is not None
        assert (await pipelines.finished(slot.run_id)).status == "completed"
        await pipelines.deploy(DAG % "0 7 * * *")
        await scheduler.tick()
        assert (await scheduler.schedules.get(playbooks.scope, "shop.orders")).spec.expression == "0 7 * * *"
        await pipelines.deploy((DAG % "0 7 * * *").replace("kind: cron", "kind: manual").replace(
            ', schedule: "0 7 * * *", timezone: Europe/Berlin', ""))  # fmt: skip
        await scheduler.tick()
        assert await scheduler.schedules.listed(playbooks.scope) == []


async def test_a_source_that_is_gone_is_told_as_nothing_to_do(playbooks: Playbooks, task_engine: TaskEngine) -> None:
    async with scheduling(playbooks, task_engine) as scheduler:
        definition = Definition(
            named=Named(name="gone.job", scope_kind="dag", scope_id="gone"), kind="source",
            target={"dag": "gone", "job": "job"}, spec=Spec(expression="rate(1 hour)"),
        )  # fmt: skip
        row, _ = await scheduler.schedules.put(playbooks.scope, definition, by="tests")
        scheduler.sources._seen = (0, None, None)
        held, ended = await scheduler.run_now(playbooks.scope, "gone.job")
        await ended.wait()
        slot = await scheduler.slot(held)
    assert slot.status == "SUCCESS"
    assert "no job" in str(slot.skipped_reason)
    assert row.named.scope_kind == "dag"


async def test_old_slots_are_pruned_by_an_event_that_folds(playbooks: Playbooks) -> None:
    runtime = playbooks.runtime
    jobs = PlatformJobs()
    prune = PruneSlots(runtime.database, runtime.ledger, runtime.ids.mint_many, PRODUCER, succeeded_days=0.0)
    jobs.register(PRUNE_SLOTS, prune, PRUNE_SPEC)
    await playbooks.worker()
    await playbooks.register(NIGHTLY)
    async with scheduling(playbooks, platform=jobs) as scheduler:
        await scheduler.keep_platform_jobs()
        row, _ = await scheduler.schedules.put(playbooks.scope, nightly(), by="tests")
        await behind(playbooks, row, timedelta(hours=1))
        (slot,) = await ticked(scheduler, row)
        assert slot.run_id is not None
        await playbooks.finished(slot.run_id)
        held, ended = await scheduler.run_now(PLATFORM, PRUNE_SLOTS)
        await ended.wait()
        assert (await scheduler.slot(held)).rows_affected == 1
        assert await scheduler.schedules.slots(row.scope, row.schedule_id) == []


async def test_metrics_are_there_from_the_start_and_count_by_kind(playbooks: Playbooks) -> None:
    metrics = Metrics("1", database=playbooks.runtime.database)
    before, _ = await metrics.exposition()
    for series in (
        'scheduler_claim_total{kind="playbook",result="won"} 0.0',
        'scheduler_execution_total{kind="source",result="failed"} 0.0',
        'scheduler_execution_duration_seconds_count{kind="platform"} 0.0',
        'scheduler_plan_lag_seconds{kind="playbook"} 0.0',
        'scheduler_running_stale_total{kind="playbook"} 0.0',
        'scheduler_failed_unretried_total{kind="playbook"} 0.0',
        'scheduler_heartbeat_total{kind="playbook",result="renewed"} 0.0',
    ):
        assert series.encode() in before, series
    async with scheduling(playbooks, meter=metrics.schedules) as scheduler:
        row, _ = await scheduler.schedules.put(playbooks.scope, nightly(retry_backoff=()), by="tests")
        await behind(playbooks, row, timedelta(hours=1))
        await ticked(scheduler, row)
    async with playbooks.runtime.database.transaction(None, "reaper") as connection:
        metrics.schedules.show_standing(await connection.fetch(STANDING))
    after = metrics.registry.get_sample_value
    assert after("scheduler_claim_total", {"kind": "playbook", "result": "won"}) == 1
    assert after("scheduler_execution_total", {"kind": "playbook", "result": "failed"}) == 1
    assert after("scheduler_failed_unretried_total", {"kind": "playbook"}) == 1


async def test_schedules_of_the_platform_are_kept_under_a_scope_of_their_own(playbooks: Playbooks) -> None:
    """INV-66."""
    jobs = PlatformJobs()
    jobs.register(PRUNE_SLOTS, PruneSlots(playbooks.runtime.database, playbooks.runtime.ledger, playbooks.runtime.ids.mint_many, PRODUCER), PRUNE_SPEC)  # fmt: skip
    async with scheduling(playbooks, platform=jobs) as scheduler:
        await scheduler.keep_platform_jobs()
        await scheduler.keep_platform_jobs()
        assert (await scheduler.schedules.get(PLATFORM, PRUNE_SLOTS)).version == 1
        assert await scheduler.schedules.listed(playbooks.scope) == []
        assert await scheduler.schedules.listed(Scope("default", "another")) == []
