"""Who gets the commands a decision issues: facts and drafts go in, the first one for a worker and its grant come out."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from noetl.dispatch.grants import CommandGrant, LoopGrant, StepContext
from noetl.dispatch.locality import Patience, claimant, may_take
from noetl.errors import NotFound
from noetl.ledger.transition import Append
from noetl.model.event import Draft
from noetl.plan.fact import Fact
from noetl.plan.places import told_place
from noetl.plan.state import State


def handed_to(facts: tuple[Fact, ...], worker: str, patience: Patience) -> tuple[tuple[Fact, ...], Fact | None]:
    """Lease the first command that waits for a worker to this one, unless it is first for those near its inputs."""
    open_after = {fact.command_id for fact in facts if fact.event_type == "command.issued"} - {
        fact.command_id for fact in facts if fact.event_type in ("command.completed", "command.failed")
    }
    for number, fact in enumerate(facts):
        if (
            fact.event_type == "command.issued"
            and fact.command_id in open_after
            and "child_execution_id" not in fact.meta
        ):
            near = told_place(fact.meta.get("near"))
            if near is not None and not may_take(claimant(worker), near, 0.0, patience):
                return facts, None
            meta = {**fact.meta, "worker": worker, "attempt": 1, "lease_token": str(uuid.uuid4())}
            handed = msgspec.structs.replace(fact, meta=meta)
            return (*facts[:number], handed, *facts[number + 1 :]), handed
    return facts, None


def first_issued(after: State, appends: tuple[Append, ...]) -> Draft | None:
    """Find the first command that a decision issued and that is for a worker; the one `handed_to` leases, too."""
    for draft in appends[0].drafts:
        if (
            draft.event_type == "command.issued"
            and "child_execution_id" not in draft.meta
            and after.run_of(draft.command_id or "") is not None
        ):
            return draft
    return None


def grant_of(state: State, command_id: str, lease: dict[str, Any], issued_event_id: int) -> CommandGrant:
    """Return what a worker needs to work on a command it holds the lease of."""
    found = state.run_of(command_id)
    if found is None:
        raise NotFound(f"command {command_id} of execution {state.execution_id} has ended")
    step, run = found
    loop = None
    if run.loop is not None:
        assert run.loop_id is not None
        assert run.stage_id is not None
        loop = LoopGrant(
            stage_id=run.stage_id,
            loop_id=run.loop_id,
            mode=run.loop["mode"],
            total=run.loop["total"],
            frame=run.loop["frame"],
            rows_ref=run.rows_ref,
        )
    return CommandGrant(
        execution_id=state.execution_id,
        command_id=command_id,
        step=step,
        attempt=lease["attempt"],
        token=lease["lease_token"],
        lease_seconds=lease["lease_seconds"],
        catalog_id=state.catalog_id,
        issued_event_id=issued_event_id,
        context=StepContext(workload=state.workload, ctx=state.ctx, results=state.results),
        loop=loop,
        worker=lease.get("worker") or "",
    )
