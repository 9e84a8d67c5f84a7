"""How a step is left: its outcome goes in, what it sets, which arcs it takes and whether it fails come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import NoetlError
from noetl.plan.fact import Fact
from noetl.plan.names import DONE, FAILED, LOOP_DONE, state_names, view
from noetl.plan.planned import PlannedStep
from noetl.plan.trigger import CommandEnded, Tally
from noetl.playbook.scopes import Names, apply_set
from noetl.playbook.templates import holds

if TYPE_CHECKING:
    from noetl.plan.decide import Deciding


def leave(deciding: Deciding, step: str, trigger: CommandEnded) -> None:
    """Say that a step ended, and where it goes from there."""
    planned = deciding.plan.step(step)
    run = deciding.state.active[step]
    closing: dict[str, Any] = {}
    if run.loop is not None:
        closing = close_loop(deciding, step, trigger.tally or Tally(), failed=run.failed)
        failed = closing["status"] == "failed"
    else:
        if run.stage_id is not None:
            status = "failed" if run.failed else "completed"
            deciding.say(
                Fact(event_type="stage.closed", at="stage", node_name=step, stage_id=run.stage_id, status=status)
            )
        failed = run.failed is not None
    output = closing.get("output") or _output(deciding, step, trigger)
    name = LOOP_DONE if run.loop is not None else FAILED if failed else DONE
    names = state_names(
        deciding.state, loaded=deciding.loaded, output=output, event={"name": name, "step": step, "type": str(name)}
    )
    if closing:
        names["fanin"] = closing["fanin"]
    names[step] = {**closing["data"], "data": closing["data"], "_ref": None} if closing else _own(deciding, names, step)
    error = closing.get("error") or run.failed
    try:
        if not failed or run.loop is not None:
            apply_set(names, planned.set)
        taken, refused = _route(planned, names, failed=failed and run.loop is None)
    except NoetlError as problem:
        # Where a template fails nobody can say what was meant, so nothing is guessed.
        failed, taken, refused, error = True, [], [], problem.message
        names.ctx_writes.clear()
        fails = True
    else:
        fails = failed and not (taken and _handles_errors(planned, taken))
    if not taken and not failed and deciding.plan.playbook.no_next_is_error and not _ends(deciding, planned):
        failed = fails = True
        error = f"no arc of step {step} holds, and executor.spec.no_next_is_error is set"
    if planned.source.failure == "best_effort":
        fails = False
    bad = closing["bad"] if closing else int(failed)
    swallowed = closing.get("errors", 0) + (0 if fails else bad)
    _say_exited(
        deciding, step, closing, names, taken, refused, failed=failed, fails=fails, error=error, swallowed=swallowed
    )


def _own(deciding: Deciding, names: Names, step: str) -> Any:
    ended = deciding.state.active[step].ended
    if ended is None:
        return names.get(step)
    return view(ended, deciding.loaded[step]) if step in deciding.loaded else view(ended)


def _say_exited(
    deciding: Deciding,
    step: str,
    closing: dict[str, Any],
    names: Names,
    taken: list[int],
    refused: list[int],
    *,
    failed: bool,
    fails: bool,
    error: str | None,
    swallowed: int,
) -> None:
    planned = deciding.plan.step(step)
    run = deciding.state.active[step]
    meta: dict[str, Any] = {"run": run.number}
    if taken:
        meta["taken"] = [[arc, planned.arcs[arc].step] for arc in taken]
    if refused:
        meta["refused"] = refused
    if fails:
        meta["fails"] = True
    if swallowed:
        meta["swallowed"] = swallowed
    deciding.say(
        Fact(
            event_type="step.exited",
            node_name=step,
            status="failed" if failed else "completed",
            stage_id=run.stage_id,
            loop_id=run.loop_id,
            meta=meta,
            context={"set": {**closing.get("ctx", {}), **names.ctx_writes}}
            if names.ctx_writes or closing.get("ctx")
            else {},
            result={"status": "error" if failed else "ok", "data": closing["data"]} if closing else {},
            error=error if failed else None,
            payload_ref=closing.get("manifest"),
        )
    )


def _output(deciding: Deciding, step: str, trigger: CommandEnded) -> dict[str, Any]:
    data = deciding.loaded.get(step, trigger.data)
    return {
        "status": trigger.status,
        "data": data,
        "ref": None if trigger.ref is None else msgspec.to_builtins(trigger.ref),
        "error": trigger.error,
        "meta": {"attempt": trigger.attempt, "duration_ms": trigger.duration_ms},
        **trigger.helpers,
    }


def _route(planned: PlannedStep, names: Names, *, failed: bool) -> tuple[list[int], list[int]]:
    """Return the arcs that are taken and those that were looked at and not taken."""
    router = planned.source.router
    taken: list[int] = []
    refused: list[int] = []
    for number, arc in enumerate(planned.arcs):
        if failed and not arc.takes_errors:
            refused.append(number)
            continue
        if arc.when is not None and not _holds(arc, names, failed=failed):
            refused.append(number)
            continue
        taken.append(number)
        if router is not None and router.mode == "exclusive":
            break
    for number in taken:
        apply_set(names, planned.arcs[number].set)
    return taken, refused


def _holds(arc: Any, names: Names, *, failed: bool) -> bool:
    try:
        return holds(arc.when.render(names), "arc")
    except NoetlError:
        # After an error its data may be missing: a condition on them is not what handles the error.
        if failed:
            return False
        raise


def _handles_errors(planned: PlannedStep, taken: list[int]) -> bool:
    return any(planned.arcs[number].takes_errors for number in taken)


def _ends(deciding: Deciding, planned: PlannedStep) -> bool:
    playbook = deciding.plan.playbook
    return planned.source.name in (playbook.final, "end") or (not planned.arcs and playbook.final is not None)


def close_loop(deciding: Deciding, step: str, tally: Tally, *, failed: str | None) -> dict[str, Any]:
    """Say that a loop's rows have all ended, and return its outcome."""
    run = deciding.state.active[step]
    loop = run.loop or {}
    total = loop["total"] if loop["total"] is not None else tally.rows_done + tally.rows_failed
    lost = max(0, total - tally.rows_done - tally.rows_failed)
    bad = tally.rows_failed + lost
    counts = {"done": tally.rows_done, "failed": bad, "total": total}
    fanin = "complete" if not bad else "failed" if not tally.rows_done and total else "partial"
    options = deciding.plan.step(step).source.loop
    assert options is not None
    if loop["mode"] == "fanout" and bad and (options.fanout.fail_fast or not options.fanout.allow_partial):
        fanin = "failed"
    is_failed = (fanin == "failed" if loop["mode"] == "fanout" else bool(bad)) or failed is not None
    status = "failed" if is_failed else "completed"
    if run.stage_id is not None:
        deciding.say(
            Fact(
                event_type="stage.closed",
                at="stage",
                node_name=step,
                stage_id=run.stage_id,
                loop_id=run.loop_id,
                status=status,
                meta={"frames": tally.frames, "rows": total, "failed": bad},
            )
        )
    if loop["mode"] == "fanout":
        done = Fact(
            event_type="loop.fanin.completed",
            at="loop",
            node_name=step,
            loop_id=run.loop_id,
            status="completed" if fanin == "complete" else fanin,
            result={"status": fanin, "context": counts},
        )
    else:
        done = Fact(
            event_type="loop.done",
            at="loop",
            node_name=step,
            loop_id=run.loop_id,
            status="completed",
            result={
                "status": "error" if bad else "ok",
                "context": {"total": total, "completed": tally.rows_done, "failed": bad},
            },
        )
    deciding.say(done)
    data: dict[str, Any] = {"total": total, "completed": tally.rows_done, "failed": bad, "frames": tally.frames}
    if tally.results is not None:
        data["results"] = tally.results
    return {
        "status": status,
        "error": failed or (f"{bad} of {total} rows failed" if bad else None),
        "errors": tally.errors,
        "bad": bad,
        "fanin": {"status": fanin, **counts},
        "data": data,
        "ctx": tally.ctx,
        "manifest": tally.manifest,
        "output": {
            "status": "error" if bad else "ok",
            "data": data,
            "ref": None,
            "error": {"kind": "unknown", "message": f"{bad} of {total} rows failed", "retryable": False}
            if bad
            else None,
            "meta": {"attempt": 1, "duration_ms": 0.0},
        },
    }
