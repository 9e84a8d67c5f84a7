"""How a step's work ended, as its `set`, its arcs and its exit see it: one command's report, or what came of a loop's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.plan.fact import Fact
from noetl.engine.plan.state import Result, Run
from noetl.engine.plan.template_names import DONE, FAILED, LOOP_DONE, LOOP_FAILED, NOT_LOADED, EventName, view, whole
from noetl.engine.plan.trigger import CommandEnded, Tally
from noetl.language.templates.result_view import View
from noetl.model.payload_ref import PayloadRef

if TYPE_CHECKING:
    from noetl.engine.plan.decide import Deciding


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What a step came to."""

    event: EventName
    output: dict[str, Any]
    own: View
    """How its result looks in its own templates."""
    error: str | None = None
    bad: int = 0
    """Errors that are swallowed if the execution goes on."""
    swallowed: int = 0
    ctx: dict[str, Any] = {}
    result: dict[str, Any] = {}
    """What its exit has to say of its result; nothing where the end of its command has said it."""
    manifest: PayloadRef | None = None
    of_loop: dict[str, Any] = {}
    """Names that only the `set` and the arcs of a loop know: what became of its rows, and that there are no more."""


def close_command(deciding: Deciding, step: str, trigger: CommandEnded) -> Ending:
    """Say that a reduce step's stage is closed, if it is one, and return how its command ended."""
    run = deciding.state.active[step]
    ended = run.ended or Result()  # a step that had no work had no command, either
    if run.stage_id is not None:
        status = "completed" if run.failed is None else "failed"
        deciding.say(Fact(event_type="stage.closed", at="stage", node_name=step, stage_id=run.stage_id, status=status))
    loaded = deciding.loaded.get(step, NOT_LOADED)
    return Ending(
        event=DONE if run.failed is None else FAILED,
        output={
            "status": trigger.status,
            "data": whole(ended, loaded),
            "ref": None if trigger.ref is None else msgspec.to_builtins(trigger.ref),
            "error": None if trigger.error is None else {"status": trigger.error.get("http_status"), **trigger.error},
            "meta": {"attempt": trigger.attempt, "duration_ms": trigger.duration_ms},
            **trigger.helpers,
        },
        own=view(ended, loaded),
        error=run.failed,
        bad=0 if run.failed is None else 1,
        result={} if run.ended is not None else {"status": ended.status},
    )


def close_loop(deciding: Deciding, step: str, tally: Tally) -> Ending:
    """Say that a loop's rows have all ended, and return what came of them."""
    run = deciding.state.active[step]
    loop = run.loop or {}
    # Rows of frames that nobody ended were tried, and their workers lost; rows nobody was given were not tried.
    handed_out = max(tally.rows_handed_out, tally.rows_done + tally.rows_failed)
    total = handed_out if loop["total"] is None else loop["total"]
    untried = max(0, total - handed_out)
    bad = min(handed_out, total) - tally.rows_done
    # A slot that failed leaves it open whether there were more rows, unless all of a known number have ended.
    broken = run.failed if loop["total"] is None or tally.rows_done + tally.rows_failed < total else None
    fanin = _fanin(deciding, step, tally.rows_done, bad + untried, total)
    is_failed = (fanin == "failed" if loop["mode"] == "fanout" else bool(bad + untried)) or broken is not None
    rows = _counted(bad, untried, total)
    first = f"; first: {tally.problem}" if bad and tally.problem else ""
    error = ": ".join(filter(None, (rows, run.failed))) + first if is_failed else None
    _say_closed(deciding, step, run, tally, total=total, bad=bad, untried=untried, is_failed=is_failed, fanin=fanin)
    data: dict[str, Any] = {"total": total, "completed": tally.rows_done, "failed": bad, "frames": tally.frames}
    if untried:
        data["not_tried"] = untried
    if tally.results is not None:
        data["results"] = tally.results
    status = "error" if is_failed else "ok"
    came_to = Result(status=status, data=data, ref=tally.manifest)
    loaded = deciding.loaded.get(step, NOT_LOADED)
    problem = error if error is not None or rows is None else rows + first
    return Ending(
        event=FAILED if broken is not None else LOOP_FAILED if is_failed else LOOP_DONE,
        output={
            "status": "ok" if problem is None else "error",
            "data": whole(came_to, loaded),
            "ref": None if tally.manifest is None else msgspec.to_builtins(tally.manifest),
            "error": None if problem is None else {"kind": "unknown", "message": problem, "retryable": False},
            "meta": {"attempt": 1, "duration_ms": 0.0},
        },
        own=view(came_to, loaded),
        error=error,
        bad=max(bad + untried, int(run.failed is not None)),
        swallowed=tally.errors,
        ctx=tally.ctx,
        result={"status": status, "data": data},
        manifest=tally.manifest,
        of_loop={
            "fanin": {"status": fanin, "done": tally.rows_done, "failed": bad, "not_tried": untried, "total": total},
            # As its last row saw it, but for the end; while it is unknown whether there were more rows it is not done.
            "loop": {
                "index": max(0, total - 1),
                "first": total < 2,
                "last": True,
                "length": total,
                "done": broken is None,
            },
        },
    )


def _counted(bad: int, untried: int, total: int) -> str | None:
    """Say how many rows failed and how many nobody tried; None where all ended well."""
    if not untried:
        return f"{bad} of {total} rows failed" if bad else None
    never = f"{untried} of {total} rows {'was' if untried == 1 else 'were'} never tried"
    return f"{bad} of {total} rows failed and {never}" if bad else never


def _fanin(deciding: Deciding, step: str, done: int, bad: int, total: int) -> str:
    if not bad:
        return "complete"
    loop = deciding.plan.step(step).source.loop
    assert loop is not None
    is_strict = loop.mode == "fanout" and (loop.fanout.fail_fast or not loop.fanout.allow_partial)
    return "failed" if is_strict or (not done and total) else "partial"


def _say_closed(
    deciding: Deciding,
    step: str,
    run: Run,
    tally: Tally,
    *,
    total: int,
    bad: int,
    untried: int,
    is_failed: bool,
    fanin: str,
) -> None:
    never = {"not_tried": untried} if untried else {}
    if run.stage_id is not None:
        deciding.say(
            Fact(
                event_type="stage.closed",
                at="stage",
                node_name=step,
                stage_id=run.stage_id,
                loop_id=run.loop_id,
                status="failed" if is_failed else "completed",
                meta={"frames": tally.frames, "rows": total, "failed": bad, **never},
            )
        )
    if (run.loop or {})["mode"] == "fanout":
        kind, status = "loop.fanin.completed", "completed" if fanin == "complete" else fanin
        result = {"status": fanin, "context": {"done": tally.rows_done, "failed": bad, "total": total, **never}}
    else:
        kind, status = "loop.done", "completed"
        counts = {"total": total, "completed": tally.rows_done, "failed": bad, **never}
        result = {"status": "error" if is_failed else "ok", "context": counts}
    deciding.say(Fact(event_type=kind, at="loop", node_name=step, loop_id=run.loop_id, status=status, result=result))
