"""How a step is left: its outcome goes in, what it sets, which arcs it takes and whether it fails come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.plan.fact import Fact, recorded
from noetl.engine.plan.planned import PlannedArc, PlannedStep
from noetl.engine.plan.state import net, written
from noetl.engine.plan.template_names import state_names
from noetl.engine.plan.trigger import CommandEnded, Tally
from noetl.engine.plan.work_result import Ending, close_command, close_loop
from noetl.errors import NoetlError, TemplateFailed, TemplateUnbounded
from noetl.language.templates.scopes import Names, apply_set
from noetl.language.templates.template import holds

if TYPE_CHECKING:
    from noetl.engine.plan.decide import Deciding


def leave(deciding: Deciding, step: str, trigger: CommandEnded) -> None:
    """Say that a step ended, and where it goes from there."""
    planned = deciding.plan.step(step)
    is_loop = deciding.state.active[step].loop is not None
    tally = trigger.tally or Tally()
    ending = close_loop(deciding, step, tally) if is_loop else close_command(deciding, step, trigger)
    names = _names(deciding, step, ending)
    failed, error = ending.error is not None, ending.error
    goes_on = planned.source.failure == "best_effort"
    try:
        if is_loop or not failed:
            apply_set(names, planned.set)
        taken, refused = _route(
            planned, names, only_handlers=failed and not goes_on, may_lack_data=failed and not is_loop
        )
        for arc in (planned.arcs[number] for number in taken):
            if arc.step not in deciding.plan.steps:
                raise TemplateFailed(f"{arc.where}: the playbook has no such step")
        writes = {
            path: recorded(value, f"{planned.where}, set of ctx.{path}") for path, value in names.ctx_writes.items()
        }
    except NoetlError as problem:
        # Where a template fails nobody can say what was meant, so nothing is guessed.
        failed, fails, error = True, True, problem.message
        taken, refused, writes = [], [], {}
    else:
        fails = failed and not goes_on and not taken
        if not taken and not fails and deciding.plan.playbook.no_next_is_error and not _ends(deciding, planned):
            failed = fails = True
            error = f"no arc of step {step} holds, and executor.spec.no_next_is_error is set"
    run = deciding.state.active[step]
    meta: dict[str, Any] = {"run": run.number}
    if taken:
        meta["taken"] = [[arc, planned.arcs[arc].step] for arc in taken]
    if refused:
        meta["refused"] = refused
    if fails:
        meta["fails"] = True
    if swallowed := ending.swallowed + (0 if fails else ending.bad):
        meta["swallowed"] = swallowed
    if near := _near(trigger, tally):
        meta["near"] = near
    changes = net([*sorted(ending.ctx.items()), *writes.items()])
    deciding.say(
        Fact(
            event_type="step.exited",
            node_name=step,
            status="failed" if failed else "completed",
            stage_id=run.stage_id,
            loop_id=run.loop_id,
            meta=meta,
            context={"set": changes} if changes else {},
            result=ending.result,
            error=error if failed else None,
            payload_ref=ending.manifest,
        )
    )


def _near(trigger: CommandEnded, tally: Tally) -> dict[str, Any] | None:
    """Say where a result lies that is too large for its event, and how much of it, so that what reads it can go there."""
    if tally.manifest is not None and tally.near is not None:
        place, size = tally.near, tally.near_bytes
    elif trigger.ref is not None and trigger.near is not None:
        place, size = trigger.near, trigger.ref.bytes
    else:
        return None
    return {**msgspec.to_builtins(place), "bytes": size}


def _names(deciding: Deciding, step: str, ending: Ending) -> Names:
    event = {"name": ending.event, "step": step, "type": str(ending.event)}
    names = state_names(
        deciding.state,
        steps=deciding.plan.steps.keys(),
        asked=deciding.plan.step(step).names_on_exit,
        loaded=deciding.loaded,
        output=ending.output,
        event=event,
    )
    names.put_ctx(written(names["ctx"], ending.ctx), ending.ctx)
    names.keep(step, ending.own)
    names.update(ending.of_loop)
    return names


def _route(
    planned: PlannedStep, names: Names, *, only_handlers: bool, may_lack_data: bool
) -> tuple[list[int], list[int]]:
    """Return the arcs that are taken and those that were looked at and not taken."""
    router = planned.source.router
    taken: list[int] = []
    refused: list[int] = []
    for number, arc in enumerate(planned.arcs):
        if (only_handlers and not arc.takes_errors) or not _holds(arc, names, may_lack_data=may_lack_data):
            refused.append(number)
            continue
        taken.append(number)
        if router is not None and router.mode == "exclusive":
            break
    for number in taken:
        apply_set(names, planned.arcs[number].set)
    return taken, refused


def _holds(arc: PlannedArc, names: Names, *, may_lack_data: bool) -> bool:
    if arc.when is None:
        return True
    try:
        return holds(arc.when.render(names), "arc")
    except NoetlError as problem:
        # After an error its data may be missing: a condition on them is not what handles the error.
        if may_lack_data and not isinstance(problem, TemplateUnbounded):
            return False
        raise


def _ends(deciding: Deciding, planned: PlannedStep) -> bool:
    playbook, router = deciding.plan.playbook, planned.source.router
    if router is not None and router.on_no_match == "quiet":
        return True
    return planned.source.name in (playbook.final, "end") or (not planned.arcs and playbook.final is not None)
