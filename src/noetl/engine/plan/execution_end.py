"""How an execution ends: the rest is stopped, the end is said, and a caller gets its result or its error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from noetl.engine.plan.fact import Fact
from noetl.engine.plan.state import Result, State
from noetl.engine.plan.trigger import Cancelled

if TYPE_CHECKING:
    from noetl.engine.plan.decide import Deciding


_LAST_OF_MANY: Final = re.compile(
    r"child execution \d+ ended as [A-Z]+: (?:… )?(?=child execution \d+ ended as [A-Z]+: )"
)
"""What stands before the child that failed by itself, in the error of one that did not."""


def result_of(state: State, return_step: str | None) -> Result:
    """Return what an execution came to: its last step that said something, or the named step."""
    step = return_step if return_step in state.results else state.result_step
    return state.results.get(step or "", Result())


def failure_of(execution_id: int, status: str, error: str | None) -> str:
    """Say that a child did not end well, and why; of many below each other, those between are left out."""
    return f"child execution {execution_id} ended as {status}: {_LAST_OF_MANY.sub('… ', str(error), count=1)}"


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
