"""Transitions of an execution as the engine makes them: a test names what matters to it, the rest is filled in soundly."""

from __future__ import annotations

import time
import uuid
from typing import Any

from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Fence, Transition
from noetl.model.event import Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts

SCOPE = Scope("acme", "care")
NEIGHBOUR = Scope("globex", "care")
IDS = SnowflakeGenerator(31, lambda: time.time_ns() // 1_000_000)
RUN_OUT = -1.0
"""Seconds of a lease that has run out when it is given."""
LONG = 1e9
"""Seconds that nothing in a test has waited."""


def token() -> str:
    return str(uuid.uuid4())


class Driven:
    """One execution; every method but the last gives a transition to send."""

    def __init__(self, scope: Scope = SCOPE, execution_id: int | None = None) -> None:
        self.drafts = Drafts(scope, IDS.mint)
        self.execution_id = execution_id or IDS.mint()
        self.stage_id, self.loop_id = IDS.mint(), IDS.mint()

    def requested(self, **fields: Any) -> Transition:
        meta = {"path": "tests/driven", "version": 1, "playbook_digest": "ab" * 32, **fields.pop("meta", {})}
        return one(
            self.drafts.execution(self.execution_id, "execution.requested", catalog_id="c1", meta=meta, **fields)
        )

    def issued(self, *names: str, **given: Any) -> Transition:
        """Issue commands; what is given beside fields of the event goes to its meta."""
        fields = {name: given.pop(name) for name in ("stage_id", "loop_id") if name in given}
        meta = {"tool_kind": "python", "lease_seconds": 30.0, **given}
        drafts = [
            self.drafts.execution(
                self.execution_id, "command.issued", node_name="work", command_id=name, meta=meta, **fields
            )
            for name in names
        ]
        return Transition((Append(drafts[0].stream, drafts),))

    def command(self, name: str, kind: str, fence: Fence | None = None, **meta: Any) -> Transition:
        return one(self.drafts.command(self.execution_id, name, kind, meta={"attempt": 1, **meta}), fence)

    def claimed(self, name: str, held: str, attempt: int = 1, worker: str = "w1") -> Transition:
        lease = {"attempt": attempt, "worker": worker, "lease_token": held, "lease_seconds": 30.0}
        return self.command(name, "command.claimed", self.fence(name, attempt - 1, None, "free"), **lease)

    def opened(self, total_rows: int | None = 100, kind: str = "loop") -> Transition:
        meta = {"kind": kind, "dsl_ref": "p#each", "total_rows": total_rows}
        context = {"frame_policy": {"max_rows": 10, "max_seconds": 1.5}}
        return one(
            self.drafts.stage(self.execution_id, self.stage_id, loop_id=self.loop_id, meta=meta, context=context)
        )

    def closed(self) -> Transition:
        return one(self.drafts.stage(self.execution_id, self.stage_id, "stage.closed", loop_id=self.loop_id))

    def dispatched(
        self, frame_id: int, held: str, attempt: int = 1, index: int = 0, seconds: float = 30.0, **fields: Any
    ) -> Transition:
        meta = {
            "attempt": attempt,
            "worker": "w1",
            "row_count": 10,
            "frame_index": index,
            "lease_token": held,
            "lease_seconds": seconds,
        }
        given = {"current_index": index * 10, "command_id": "each/1/0", **fields, "meta": meta}
        draft = self.drafts.frame(self.execution_id, self.stage_id, frame_id, loop_id=self.loop_id, **given)
        if attempt == 1:
            return Transition((Append(draft.stream, [draft], 0),))
        return one(draft, self.frame_fence(frame_id, attempt - 1, None, "free"))

    def frame(self, frame_id: int, kind: str, fence: Fence | None = None, **fields: Any) -> Transition:
        meta = {"attempt": 1, "row_count": 10, **fields.pop("meta", {})}
        draft = self.drafts.frame(
            self.execution_id, self.stage_id, frame_id, kind, loop_id=self.loop_id, meta=meta, **fields
        )
        return one(draft, fence)

    def ended(self, kind: str = "playbook.completed") -> Transition:
        return one(self.drafts.execution(self.execution_id, kind))

    def fence(self, name: str, attempt: int, held: str | None, mode: Any = "held") -> Fence:
        return Fence("command", self.execution_id, name, attempt, held, mode)

    def frame_fence(self, frame_id: int, attempt: int, held: str | None, mode: Any = "held") -> Fence:
        return Fence("frame", self.execution_id, str(frame_id), attempt, held, mode)

    async def begin(self, ledger: Ledger, *commands: str, stage: bool = False) -> Driven:
        """Record the beginning: the request, then commands and a stage if asked for."""
        await ledger.transact(self.requested())
        if stage:
            await ledger.transact(self.opened())
        if commands:
            await ledger.transact(self.issued(*commands))
        return self


def one(draft: Draft, *fences: Fence | None) -> Transition:
    return Transition((Append(draft.stream, [draft]),), tuple(fence for fence in fences if fence is not None))


def joined(*transitions: Transition) -> Transition:
    return Transition(
        tuple(append for transition in transitions for append in transition.appends),
        tuple(fence for transition in transitions for fence in transition.fences),
    )


async def child_of(ledger: Ledger, parent: Driven, **meta: Any) -> Driven:
    """Start an execution below another."""
    child = Driven()
    await ledger.transact(child.requested(parent_execution_id=parent.execution_id, meta=meta))
    return child
