"""Why an execution is as it is: its status, what it waits for, why it failed, what errors it passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from noetl.engine.dispatch.why.story import (
    LOST,
    TRIED,
    Command,
    Run,
    Sentence,
    Stage,
    Story,
    at,
    counted,
    failed_rows,
    sentence,
)
from noetl.engine.plan.planned import Plan
from noetl.model.event import Event

_WORDS = {"COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "was cancelled"}
_SHOWN_FRAMES = 10


def execution_sentences(story: Story, plan: Plan | None) -> Iterator[Sentence]:
    """Say how an execution stands."""
    yield from _status(story)
    if story.ended is None:
        yield from _waits(story, plan)
    else:
        yield from _failure(story, story.ended)
    for step, runs in story.runs.items():
        # A step that goes round tells of each time by itself.
        yield from next((said for run in reversed(runs) if (said := list(failed_rows(story, step, run)))), ())
    yield from _swallowed(story)


def _status(story: Story) -> Iterator[Sentence]:
    asked, ended, state = story.requested, story.ended, story.state
    name = f"execution {story.execution_id}" + (f" of {state.path}" if state.path else "")
    if ended is None:
        begun = (
            "" if asked is None else f" since {at(asked)}, asked for by {asked.meta.get('requested_by', 'somebody')}"
        )
        yield sentence("status", f"{name} is running{begun}.", asked)
    else:
        by = f" by {ended.meta['by']}" if "by" in ended.meta else ""
        yield sentence("status", f"{name} {_WORDS.get(state.status, state.status.lower())} at {at(ended)}{by}.", ended)
    if asked is None:
        return
    if rerun_of := asked.meta.get("rerun_of"):
        begin = f", from step {asked.meta['from_step']} on" if asked.meta.get("from_step") else ""
        yield sentence("rerun", f"It runs execution {rerun_of} again{begin}.", asked)
    if state.parent_execution_id is not None:
        waits = f", whose command {state.parent_command_id} waits for it" if state.parent_command_id else ""
        yield sentence("parent", f"It was started by execution {state.parent_execution_id}{waits}.", asked)


def _waits(story: Story, plan: Plan | None) -> Iterator[Sentence]:
    count = 0
    for step, runs in story.runs.items():
        if step not in story.state.active:
            continue
        run = runs[-1]
        sentences = list(_loop(story, step, run) if run.began.meta.get("loop") else _commands(step, run))
        count += len(sentences)
        yield from sentences
    for step, arrivals in story.waiting.items():
        yield sentence("waits", _barrier(story, plan, step, arrivals), *(event for event, _ in arrivals))
    if not count:
        text = "Nothing is open: it goes on, or ends, as soon as this is noticed, which is a matter of seconds."
        yield sentence("waits", text, story.last)


def _commands(step: str, run: Run) -> Iterator[Sentence]:
    for command in run.commands:
        if command.ended is None:
            yield _command(f"step {step} (run {run.number})", command)


def _command(name: str, command: Command) -> Sentence:
    issued = command.issued
    if child := issued.meta.get("child_execution_id"):
        return sentence("waits", f"{name} is suspended since {at(issued)} until execution {child} ends.", issued)
    if (held := command.holder) is not None:
        text = f"{name} is worked on by {held.meta['worker']}, attempt {held.meta.get('attempt', 1)}, since {at(held)}"
        stalled = command.stalled
        if stalled is None:
            return sentence("waits", f"{text}.", held)
        return sentence("waits", f"{text}; {_stalled(stalled)}.", held, stalled)
    last = command.leases[-1] if command.leases else issued
    return sentence("waits", f"{name} waits for a worker since {at(last)}{_again(last)}.", issued, last)


def _stalled(event: Event) -> str:
    return f"it waits for the {event.meta['part']} since {at(event)}: {event.error}"


def _again(last: Event) -> str:
    attempt = last.meta.get("attempt")
    if last.event_type in LOST:
        return f", when attempt {attempt} was lost with {last.meta.get('worker', 'its worker')}"
    if last.event_type in TRIED:
        delay = last.meta.get("delay_seconds")
        after = f" and may be taken again after {delay:g} s" if delay else ""
        return f", when attempt {attempt} was given back: {last.error}{after}"
    if last.event_type == "command.returned":
        return f", when attempt {attempt} was handed back: {last.error}"
    return ""


def _loop(story: Story, step: str, run: Run) -> Iterator[Sentence]:
    loop, stage = run.began.meta["loop"], story.stages.get(run.began.stage_id or 0, Stage())
    slots = [command for command in run.commands if command.ended is None]
    held = Counter(slot.holder.meta["worker"] for slot in slots if slot.holder is not None)
    total = "an open number of" if loop.get("total") is None else str(loop["total"])
    counts = stage.counts
    free = sum(event.event_type in LOST | TRIED for event in stage.open.values())
    frames = f"{counted(counts['frames'], 'frame')} begun, {counts['committed']} committed, {counts['failed']} failed"
    text = (
        f"step {step} (run {run.number}) works off {total} rows ({loop['mode']}): {frames}, {len(stage.open) - free} under way,"
        f" {free} free again; {counted(counts['rows'], 'row')} done, {counts['failed_rows']} failed so far."
    )
    yield sentence("waits", text, run.began)
    workers = "".join(f", {number} by {worker}" for worker, number in sorted(held.items()))
    idle = len(slots) - sum(held.values())
    text = f"step {step}: {counted(len(slots), 'slot')} open{workers}" + (
        f", {idle} waiting for a worker." if idle else "."
    )
    yield sentence("waits", text, *(slot.holder or slot.issued for slot in slots[:_SHOWN_FRAMES]))
    for slot in slots[:_SHOWN_FRAMES]:
        if slot.holder is not None and slot.stalled is not None:
            text = f"step {step}: {slot.holder.meta['worker']} cannot go on, {_stalled(slot.stalled)}."
            yield sentence("waits", text, slot.stalled)
    for frame_id, event in list(stage.open.items())[:_SHOWN_FRAMES]:
        yield sentence("frame", f"frame {frame_id} of step {step} {_frame(event)}.", event)


def _frame(event: Event) -> str:
    attempt = event.meta.get("attempt")
    if event.event_type in LOST | TRIED:
        return f"is free since {at(event)}{_again(event)}"
    worker = f" by {event.meta['worker']}" if "worker" in event.meta else ""
    return f"is worked on{worker}, attempt {attempt}, since {at(event)}"


def _barrier(story: Story, plan: Plan | None, step: str, arrivals: list[tuple[Event, int]]) -> str:
    sources = ", ".join(dict.fromkeys(event.node_name or "" for event, _ in arrivals))
    if plan is not None and step == plan.playbook.final:
        return f"step {step} was arrived at from {sources} and runs after everything else, for it is the final step."
    if step in story.state.active:
        return f"step {step} was arrived at from {sources} and begins again when its present run has ended."
    others = [*story.state.active, *(other for other in story.waiting if other != step)]
    if plan is not None:
        others = [other for other in others if other in plan.steps and plan.graph.reaches(other, step)]
    return f"step {step} was arrived at from {sources} and waits for {', '.join(others)}, which may still lead to it."


def _failure(story: Story, ended: Event) -> Iterator[Sentence]:
    if not ended.error:
        return
    if ended.event_type != "playbook.failed":
        yield sentence("failure", f"The reason: {ended.error}.", ended)
        return
    failing = next(
        (run for run in story.runs.get(ended.node_name or "", []) if run.exited and run.exited.meta.get("fails")), None
    )
    if failing is None:
        yield sentence("failure", f"It failed because of step {ended.node_name}: {ended.error}.", ended)
        return
    commands = [command.ended for command in failing.commands if command.ended and command.ended.error]
    text = f"It failed because step {ended.node_name} failed in its run {failing.number}: {ended.error}."
    yield sentence("failure", text, failing.exited, *commands, ended)
    stopped = [runs[-1].exited for runs in story.runs.values() if _was_stopped(runs[-1].exited)]
    if stopped:
        names = ", ".join(event.node_name or "" for event in stopped if event is not None)
        yield sentence("stopped", f"Because of that these were stopped: {names}.", *stopped)


def _was_stopped(exited: Event | None) -> bool:
    return exited is not None and exited.status == "cancelled"


def _swallowed(story: Story) -> Iterator[Sentence]:
    for step, runs in story.runs.items():
        said = [
            event
            for run in runs
            for event in (*(command.ended for command in run.commands), run.exited)
            if event is not None and event.meta.get("swallowed")
        ]
        if said:
            number = sum(event.meta["swallowed"] for event in said)
            yield sentence("swallowed", f"step {step} went on in spite of {counted(number, 'error')}.", *said)
