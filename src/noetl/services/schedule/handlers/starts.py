"""What schedules of people start: an execution of a playbook, or an emission of a DAG's source. Each once per moment."""

from __future__ import annotations

from typing import Any

from noetl.engine.dispatch.engine import Engine
from noetl.errors import NotFound
from noetl.faults import reach
from noetl.model.event import time_text
from noetl.pipelines.tasks.runs import Runs
from noetl.services.schedule.handlers.port import Outcome, SlotRun


class StartPlaybook:
    """Starts the newest version of a playbook, or the one that is named; the slot ends when the execution began."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Start it, or find out that this moment's execution was started before."""
        target = slot.target
        entry = await self._engine.catalog.get(slot.scope, target["path"], target.get("version"))
        # The moment is told, not the time of the attempt: whoever computes by it gets the same rows again.
        told: dict[str, Any] = {"schedule": {"name": slot.name, "plan_time": time_text(slot.plan_time)}}
        state = await self._engine.start(
            slot.scope,
            entry,
            {**told, **target.get("workload", {})},
            requested_by=f"schedule/{slot.name}",
            key=slot.key,
        )
        reach("slot.after_effect")
        return Outcome(run_id=state.execution_id, result={"path": entry.path, "version": entry.version})


class EmitSource:
    """Starts a source job of the version that serves readers."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Start it, or find out that this moment's emission was started before."""
        dag, job = slot.target["dag"], slot.target["job"]
        try:
            run_id = await self._runs.emit(slot.scope, dag, job, requested_by=f"schedule/{slot.name}", key=slot.key)
        except NotFound as gone:
            # Another version came to serve between the claim and now, and has no such job.
            return Outcome(skipped_reason=gone.message)
        reach("slot.after_effect")
        return Outcome(run_id=run_id, result={"dag": dag, "job": job})
