"""Why a frame is as it is: its owners, losses, rows and failures."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.dispatch.story import COMMITTED, DISPATCHED, FRAME_FAILED, LOST, TRIED, Story
from noetl.dispatch.why_sentence import Sentence, at, counted, sentence
from noetl.errors import NotFound
from noetl.model.event import Event


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
