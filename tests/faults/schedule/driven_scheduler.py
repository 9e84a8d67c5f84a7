"""A scheduler with an engine on short leases: what the killed processes and the test itself run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.services.schedule.drafts import Said, ScheduleDrafts, Told
from noetl.services.schedule.handlers.port import PlatformJobs
from noetl.services.schedule.handlers.starts import StartPlaybook
from noetl.services.schedule.planning import following
from noetl.services.schedule.rows import ScheduleRow
from noetl.services.schedule.scheduler import Limits, Scheduler
from noetl.services.schedule.spec import Definition, Named, Spec
from noetl.testing.engines.short_leases import Driven, open_short_leased
from noetl.testing.samples.drafts import PRODUCER

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: jobs/nightly}
workflow:
  - step: only
    tool: {kind: noop}
"""
SPEC = Spec(
    expression="rate(1 hour)",
    mode="every_plan",
    run_timeout_seconds=0.8,
    stale_timeout_seconds=1.0,
    heartbeat_seconds=0.2,
    max_attempts=10,
    retry_backoff=(0.0,),
)


@asynccontextmanager
async def open_scheduler(url: str, home: Path, *, ticks: bool = False) -> AsyncIterator[tuple[Driven, Scheduler]]:
    """Give a scheduler that starts playbooks; one that ticks does so by itself."""
    async with open_short_leased(url, home) as driven:
        runtime = driven.runtime
        scheduler = Scheduler(
            runtime.database,
            runtime.ledger,
            runtime.ids.mint_many,
            PRODUCER,
            {"playbook": StartPlaybook(driven.engine)},
            PlatformJobs(),
            limits=Limits(poll_seconds=0.1),
        )
        if ticks:
            await scheduler.start()
        try:
            yield driven, scheduler
        finally:
            if ticks:
                await scheduler.stop()


async def plan_missed(driven: Driven, scheduler: Scheduler, hours: int) -> ScheduleRow:
    """Make a schedule that missed so many moments."""
    scope = driven.runtime.scope
    await driven.engine.catalog.register(scope, PLAYBOOK)
    definition = Definition(
        named=Named(name="nightly"), kind="playbook", target={"path": "jobs/nightly", "workload": {}}, spec=SPEC
    )
    row, _ = await scheduler.schedules.put(scope, definition, by="tests")
    first = following(row.spec, row.changed_at - timedelta(hours=hours))
    told = Told(scope, row.schedule_id, None, (Said("schedule.resumed", {"next_plan": time_text(first)}),))
    drafts = ScheduleDrafts(driven.runtime.ids.mint_many, PRODUCER)
    await driven.runtime.ledger.transact(Transition(tuple(drafts.appends([told]))))
    return row
