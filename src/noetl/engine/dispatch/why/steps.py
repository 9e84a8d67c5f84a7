"""Why a step ran, was skipped, was retried or was never entered, and why a frame is as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noetl.engine.dispatch.why.story import (
    COMMITTED,
    DISPATCHED,
    FRAME_FAILED,
    LOST,
    TRIED,
    Command,
    Run,
    Sentence,
    Story,
    arc_words,
    at,
    counted,
    failed_rows,
    sentence,
)
from noetl.engine.plan.planned import Plan
from noetl.errors import InputError, NotFound
from noetl.model.event import Event


def step_sentences(story: Story, plan: Plan | None, step: str) -> Iterator[Sentence]:
    """Say of each run of a step why it happened and what came of it."""
    runs = story.runs.get(step, [])
    if not runs:
        if plan is not None and step not in plan.steps:
            raise InputError(
                f"the playbook {story.state.path} has no step {step!r}", hint=f"its steps are {', '.join(plan.steps)}"
            )
        yield from _never(story, plan, step)
        return
    for run in runs:
        yield _cause(plan, step, run)
        if run.began.event_type == "step.skipped":
            yield sentence("skipped", f"run {run.number} was skipped: {run.began.meta.get('reason')}.", run.began)
            continue
        many = len(run.commands) > 1
        for command in run.commands:
            yield from _command(f"run {run.number}" + (f", {command.issued.command_id}" if many else ""), command)
        yield from _exit(plan, step, run)
        yield from failed_rows(story, step, run)


def _cause(plan: Plan | None, step: str, run: Run) -> Sentence:
    cause = run.began.meta.get("cause", {})
    name = f"run {run.number} of step {step} began at {at(run.began)}"
    if cause.get("entry"):
        return sentence("cause", f"{name} because the execution begins there.", run.began)
    if not run.arrivals:
        last = "as the final step, after everything else had ended" if cause.get("final") else "without an arc"
        return sentence("cause", f"{name} {last}.", run.began)
    ways = []
    for event, arc in run.arrivals:
        source = event.node_name or ""
        refused = [arc_words(plan, source, number) for number in event.meta.get("refused", ())]
        said = f", after {' and '.join(refused)} did not hold" if refused else ""
        ways.append(f"{arc_words(plan, source, arc)} of step {source} was taken{said}")
    return sentence("cause", f"{name} because {'; '.join(ways)}.", *(event for event, _ in run.arrivals), run.began)


def _command(name: str, command: Command) -> Iterator[Sentence]:
    issued, ended = command.issued, command.ended
    if child := issued.meta.get("child_execution_id"):
        yield sentence("child", f"{name} waited for execution {child}.", issued)
    if "worker" in issued.meta:
        yield sentence("attempt", f"{name}: attempt 1 was handed to {issued.meta['worker']} at once.", issued)
    for event in command.leases:
        yield sentence("attempt", f"{name}: {_lease(event)}.", event)
    for event in command.stalls:
        yield sentence("stalled", f"{name}: {_stall(event)}.", event)
    if ended is None:
        yield sentence("open", f"{name} has not ended.", (command.leases or [issued])[-1])
        return
    for tried in ended.meta.get("tries", ()):
        yield sentence("tries", f"{name}: {_tries(tried)}.", ended)
    took = f" after {ended.meta['duration_ms']:.0f} ms" if ended.meta.get("duration_ms") else ""
    word = {"completed": "ended well", "cancelled": "was stopped"}.get(ended.status or "", "failed")
    yield sentence("ended", f"{name} {word}{took}" + (f": {ended.error}." if ended.error else "."), ended)


def _lease(event: Event) -> str:
    attempt, worker = event.meta.get("attempt"), event.meta.get("worker", "its worker")
    if event.event_type in LOST:
        return f"attempt {attempt} was lost at {at(event)}, for the lease of {worker} ran out"
    if event.event_type == "command.attempt_failed":
        return f"attempt {attempt} was given back at {at(event)}: {event.error}"
    if event.event_type == "command.returned":
        return f"attempt {attempt} was handed back at {at(event)}, which counts as none: {event.error}"
    return f"attempt {attempt} was taken by {worker} at {at(event)}"


def _stall(event: Event) -> str:
    attempt, part = event.meta["attempt"], event.meta["part"]
    if event.event_type == "command.resumed":
        return f"attempt {attempt} went on at {at(event)}, for the {part} answered again"
    return f"attempt {attempt} had to wait for the {part} from {at(event)} on: {event.error}"


def _tries(tried: dict[str, Any]) -> str:
    errors = ", ".join(tried.get("errors", ()))
    return f"task {tried.get('task')} was tried {counted(tried.get('tries', 0), 'time')}" + (
        f", with problems of kind {errors}" if errors else ""
    )


def _exit(plan: Plan | None, step: str, run: Run) -> Iterator[Sentence]:
    exited = run.exited
    said = [*(command.ended for command in run.commands), exited]
    names = {name: event for event in said if event is not None for name in event.context.get("set", ())}
    if names:
        yield sentence(
            "set", f"run {run.number} set {', '.join(f'ctx.{name}' for name in sorted(names))}.", *names.values()
        )
    if exited is None:
        return
    data = exited.result.get("data")
    if isinstance(data, dict) and "total" in data:
        text = f"run {run.number}: {data.get('completed')} of {counted(data['total'], 'row')} done, {data.get('failed')} failed"
        text += f", {data['not_tried']} were never tried." if data.get("not_tried") else "."
        yield sentence("rows", text, exited)
    error = f": {exited.error}" if exited.error else ""
    yield sentence("result", f"run {run.number} was left as {exited.status} at {at(exited)}{error}.", exited)
    taken = [arc_words(plan, step, arc) for arc, _ in exited.meta.get("taken", ())]
    refused = [arc_words(plan, step, arc) for arc in exited.meta.get("refused", ())]
    if taken or refused:
        no = f"; {' and '.join(refused)} did not hold" if refused else ""
        yield sentence("routes", f"run {run.number} took {' and '.join(taken) or 'no arc'}{no}.", exited)
    if number := exited.meta.get("swallowed"):
        yield sentence("swallowed", f"run {run.number} went on in spite of {counted(number, 'error')}.", exited)
    if exited.meta.get("fails"):
        yield sentence("failure", f"run {run.number} failed the execution, for no arc handled it.", exited)


def _never(story: Story, plan: Plan | None, step: str) -> Iterator[Sentence]:
    yield sentence("never", f"step {step} was never entered.", story.ended)
    if arrivals := story.waiting.get(step):
        sources = ", ".join(event.node_name or "" for event, _ in arrivals)
        yield sentence(
            "waits", f"step {step} was arrived at from {sources} and has to wait.", *(one for one, _ in arrivals)
        )
    if plan is None:
        return
    for source in sorted(plan.graph.sources[step]):
        runs = story.runs.get(source, [])
        arcs = [number for number, arc in enumerate(plan.step(source).arcs) if arc.step == step]
        if not runs:
            yield sentence("never", f"step {source}, which leads to it, was never entered either.")
        for run in runs:
            if run.exited is not None and not {arc for arc, _ in run.exited.meta.get("taken", ())} & set(arcs):
                words = " and ".join(arc_words(plan, source, number) for number in arcs)
                yield sentence("refused", f"run {run.number} of step {source} did not take {words}.", run.exited)


def frame_sentences(story: Story, frame_id: int) -> Iterator[Sentence]:
    """Say what happened to a frame, attempt by attempt."""
    if not story.frame:
        raise NotFound(f"execution {story.execution_id} has no frame {frame_id}")
    first, last = story.frame[0], story.frame[-1]
    rows = counted(first.meta.get("row_count", 0), "row")
    begin = "" if first.current_index is None else f" from row {first.current_index} on"
    step = f" of step {first.node_name}" if first.node_name else ""
    yield sentence("rows", f"frame {frame_id}{step} holds {rows}{begin} (stage {first.stage_id}).", first)
    for event in story.frame:
        yield sentence(*_told(event), event)
    if last.event_type in DISPATCHED or last.event_type == "frame.checkpointed":
        yield sentence(
            "waits", f"It has not ended, and nothing was heard of attempt {last.meta.get('attempt')} since.", last
        )
    elif last.event_type in LOST | TRIED:
        yield sentence("waits", "It is free, and the next worker of its stage takes it.", last)


def _told(event: Event) -> tuple[str, str]:
    kind, meta = event.event_type, event.meta
    attempt = f"attempt {meta.get('attempt')}"
    worker = meta.get("worker", "its worker")
    error = f": {event.error}" if event.error else ""
    if kind in DISPATCHED:
        return "attempt", f"{attempt} was taken by {worker} at {at(event)}."
    if kind in LOST:
        return "lost", f"{attempt} was lost at {at(event)}, for the lease of {worker} ran out."
    if kind in TRIED:
        return "failed", f"{attempt} failed at {at(event)}{error}."
    if kind in COMMITTED:
        failed = meta.get("failed_count", 0)
        rows = counted(meta.get("row_count", 0), "row")
        problems = [str(problem.get("message")) for problem in event.result.get("errors", ())]
        said = f", {failed} of them failed" + (f" ({'; '.join(problems)})" if problems else "") if failed else ""
        return "committed", f"{attempt} was committed at {at(event)} with {rows}{said}."
    if kind in FRAME_FAILED:
        rows = counted(meta.get("row_count", 0), "row")
        return "failed", f"{attempt} was the last and failed at {at(event)}{error}; its {rows} count as failed."
    return "checkpoint", f"{attempt} came as far as {event.context.get('cursor')} at {at(event)}."
