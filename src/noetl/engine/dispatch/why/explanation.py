"""Why an execution, a step or a frame is as it is: the ledger's events go in, sentences with their evidence come out.

Nothing else is asked: neither the rows of open work nor any projection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

import msgspec

from noetl.engine.dispatch.why.execution import execution_sentences
from noetl.engine.dispatch.why.steps import frame_sentences, step_sentences
from noetl.engine.dispatch.why.story import Sentence, Story
from noetl.engine.plan.planned import Plan
from noetl.errors import NotFound
from noetl.kernel.payloads.envelope import resolve
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.event import Event
from noetl.model.stream import Scope


class Reads(Protocol):
    """Whatever can read the events of an execution, such as a ledger."""

    def read_execution(self, scope: Scope, execution_id: int) -> AsyncIterator[Event]:
        """Give the events of an execution in order."""
        ...


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: sentences in order, each with the events that prove it."""

    subject: str
    status: str
    as_of_event_id: int
    sentences: tuple[Sentence, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain JSON, ids as strings."""
        return {
            "subject": self.subject,
            "status": self.status,
            "as_of_event_id": str(self.as_of_event_id),
            "sentences": [
                {"topic": said.topic, "text": said.text, "event_ids": [str(event_id) for event_id in said.event_ids]}
                for said in self.sentences
            ],
        }


async def why(
    ledger: Reads,
    payloads: PayloadStore | None,
    plan: Plan | None,
    scope: Scope,
    execution_id: int,
    *,
    step: str | None = None,
    frame_id: int | None = None,
) -> Explanation:
    """Explain an execution, one of its steps or one of its frames.

    `payloads` gives back fields that were too large for their event; `plan` adds conditions of arcs, what a join waits
    for, and why a step was never entered.
    """
    story = Story(execution_id, frame_id)
    async for event in ledger.read_execution(scope, execution_id):
        story.add(event if payloads is None else await resolve(payloads, event))
    if story.last is None:
        raise NotFound(f"there is no execution {execution_id} in {scope.tenant_id}/{scope.organization_id}")
    if frame_id is not None:
        return _explained(story, f"frame {frame_id} of execution {execution_id}", frame_sentences(story, frame_id))
    if step is not None:
        return _explained(story, f"step {step} of execution {execution_id}", step_sentences(story, plan, step))
    return _explained(story, f"execution {execution_id}", execution_sentences(story, plan))


def _explained(story: Story, subject: str, sentences: Iterable[Sentence]) -> Explanation:
    assert story.last is not None
    return Explanation(
        subject=subject,
        status=story.state.status,
        as_of_event_id=story.last.event_id,
        sentences=tuple(sentences),
    )
