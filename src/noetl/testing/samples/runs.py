"""A whole run written to a ledger: a framed loop with a retry and a lost lease, for tests that read executions."""

from __future__ import annotations

from dataclasses import dataclass

from noetl.kernel.ledger.port import Ledger
from noetl.model.event import Appended, Draft
from noetl.testing.samples.drafts import Drafts


@dataclass(frozen=True)
class Run:
    """Where a run stands in the ledger."""

    execution_id: int
    shard: int
    drafts: tuple[Draft, ...]
    positions: tuple[int, ...]
    """The position of each draft."""


async def framed_run(ledger: Ledger, drafts: Drafts, frames: int = 3, *, ended: bool = True) -> Run:
    """Write a run whose loop has so many frames, the first of which is lost once and fails once before it commits."""
    run, loop, stage = drafts.mint(), drafts.mint(), drafts.mint()
    steps = [
        drafts.execution(run, "execution.requested"),
        drafts.execution(run),
        drafts.loop(run, loop, "loop.started"),
        drafts.stage(run, stage, loop_id=loop),
    ]
    for number in range(frames):
        steps += _frame(drafts, run, loop, stage, setbacks=number == 0)
    if ended:
        steps += [
            drafts.stage(run, stage, "stage.closed", loop_id=loop),
            drafts.loop(run, loop, "loop.done"),
            drafts.execution(run, "playbook.completed"),
        ]
    answers: list[Appended] = [await ledger.append(draft.stream, [draft]) for draft in steps]
    return Run(run, answers[0].shard, tuple(steps), tuple(answer.first_position for answer in answers))


def _frame(drafts: Drafts, run: int, loop: int, stage: int, *, setbacks: bool) -> list[Draft]:
    frame = drafts.mint()
    events = []
    if setbacks:
        for kind in ("frame.abandoned", "frame.attempt_failed"):
            events += [
                drafts.frame(run, stage, frame, loop_id=loop),
                drafts.frame(run, stage, frame, kind, loop_id=loop),
            ]
    events.append(drafts.frame(run, stage, frame, loop_id=loop, context={"cursor": {"first": 1, "share": 0.5}}))
    events.append(drafts.frame(run, stage, frame, "frame.committed", loop_id=loop))
    return events
