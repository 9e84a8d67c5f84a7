"""How an execution comes to its end: what is still under way after a failure is stopped, then the end is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.plan.fact import Fact
from noetl.plan.trigger import Cancelled

if TYPE_CHECKING:
    from noetl.plan.decide import Deciding


def cancellation(wish: Cancelled, swallowed: int | None) -> Fact:
    """Return the end of an execution that somebody wants to stop; `swallowed` is None where its errors were not counted."""
    meta: dict[str, Any] = {"by": wish.by}
    if swallowed is not None:
        meta["swallowed"] = swallowed
    if not wish.cascade:
        meta["cascade"] = False
    return Fact(event_type="execution.cancelled", error=wish.reason, meta=meta)


def stop_the_others(deciding: Deciding) -> None:
    """A step failed for good: what else is under way is stopped, so that the execution can end."""
    reason = f"stopped, because step {deciding.state.failed_step} failed"
    for step, run in list(deciding.state.active.items()):
        for command_id in run.open:
            deciding.say(
                Fact(
                    event_type="command.failed",
                    node_name=step,
                    command_id=command_id,
                    stage_id=run.stage_id,
                    loop_id=run.loop_id,
                    status="cancelled",
                    error=reason,
                    result={"status": "error"},
                    key=f"{command_id}/stopped",
                )
            )
        if run.stage_id is not None:
            deciding.say(
                Fact(
                    event_type="stage.closed",
                    at="stage",
                    node_name=step,
                    stage_id=run.stage_id,
                    loop_id=run.loop_id,
                    status="cancelled",
                    error=reason,
                )
            )
        deciding.say(
            Fact(
                event_type="step.exited",
                node_name=step,
                status="cancelled",
                meta={"run": run.number},
                error=reason,
            )
        )


def end(deciding: Deciding) -> None:
    """Say how the execution ended, now that nothing is open any more."""
    state = deciding.state
    meta: dict[str, Any] = {"swallowed": state.swallowed}
    if state.failure is not None:
        deciding.say(
            Fact(
                event_type="playbook.failed",
                node_name=state.failed_step,
                status="failed",
                error=state.failure,
                meta=meta,
            )
        )
        return
    result: dict[str, Any] = {"status": "ok"}
    ref = None
    if state.result_step is not None:
        found = state.results[state.result_step]
        result |= {"step": state.result_step, "data": found.data}
        ref = found.ref
    deciding.say(Fact(event_type="playbook.completed", status="completed", meta=meta, result=result, payload_ref=ref))
