"""What passes between those who hand out work and those who do it: grants, reports, leases. Values only."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.engine.plan.state import Result
from noetl.model.ids import Id64
from noetl.model.lease import Proof
from noetl.model.payload_ref import PayloadRef


class LeaseRef(msgspec.Struct, frozen=True):
    """The proof of a lease, for heartbeats and fences."""

    table: Literal["command", "frame"]
    execution_id: int
    id: str
    attempt: int
    token: str

    @property
    def proof(self) -> Proof:
        """It as the holder of a row shows it."""
        name = self.id if self.table == "command" else int(self.id)
        return Proof((self.execution_id, name), self.attempt, self.token)


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values a step's templates may read, as they were when the work was handed out."""

    workload: dict[str, Any]
    ctx: dict[str, Any]
    results: dict[str, Result]


class LoopGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The loop a slot belongs to."""

    stage_id: Id64
    loop_id: Id64
    mode: str
    total: int | None
    frame: dict[str, Any]
    rows_ref: PayloadRef | None
    ctx: dict[str, Any] = {}
    """Shared values that frames committed so far have set."""


class CommandGrant(msgspec.Struct, frozen=True, kw_only=True):
    """One step's work, leased."""

    execution_id: Id64
    command_id: str
    step: str
    attempt: int
    token: str
    lease_seconds: float
    catalog_id: str
    issued_event_id: Id64
    context: StepContext
    loop: LoopGrant | None = None
    left: tuple[str, str] | None = None
    """Application and tag under which an attempt before may still run on Spark."""
    worker: str = ""
    """To whom it was granted; nobody else reports on it."""

    @property
    def lease(self) -> LeaseRef:
        """The proof of this grant."""
        return LeaseRef("command", self.execution_id, self.command_id, self.attempt, self.token)


class FrameGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A window of a stage's rows, leased."""

    execution_id: Id64
    step: str
    stage_id: Id64
    loop_id: Id64
    frame_id: Id64
    frame_index: int
    first_index: int
    row_count: int
    attempt: int
    token: str
    lease_seconds: float
    shard_id: str | None = None
    rows_ref: PayloadRef | None = None
    checkpoint: dict[str, Any] | None = None
    max_attempts: int | None = None
    """How often the loop's policy lets it be tried; None where that is not known."""
    worker: str = ""
    """To whom it was granted; nobody else reports on it."""
    command_id: str | None = None
    """The slot it was granted to: its end, good or bad, is that slot's progress."""

    @property
    def lease(self) -> LeaseRef:
        """The proof of this grant."""
        return LeaseRef("frame", self.execution_id, str(self.frame_id), self.attempt, self.token)


class FrameSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """How far a frame in hand is, for people who watch: its rows count when it is committed."""

    stage_id: int
    frame_id: int
    attempt: int
    rows_done: int
    rows_failed: int
    rows_per_second: float


class FrameReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame came to."""

    row_count: int
    failed_count: int = 0
    swallowed: int = 0
    output: PayloadRef | None = None
    ctx_writes: dict[str, Any] = {}
    errors: list[dict[str, Any]] = []
    """The first few rows that failed, with their problems."""
    artifacts: tuple[PayloadRef, ...] = ()
    """What its rows put into the payload store to stay there."""
    rest: PayloadRef | None = None
    """Where the rows are that were not worked off, if `row_count` is less than the frame's and they were claimed elsewhere."""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A child execution a row or task asks for."""

    path: str
    version: int | None
    payload: dict[str, Any]
    return_step: str | None
    key: str
    """The same for every try at the same task of the same row, so that a retry finds the child that runs already."""
    waits: bool = True
    """Whether its end is waited for."""


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a child execution ended."""

    execution_id: Id64
    status: str
    data: Any = None
    error: str | None = None
