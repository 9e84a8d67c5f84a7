"""What can make an execution go on or end: a start, the end of a command, a cancellation, its time, or somebody's doubt."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.engine.plan.locality import Place
from noetl.model.payload_ref import PayloadRef


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asked for an execution. `workload` is what is in force: the playbook's own with the request merged in."""

    path: str
    version: int
    catalog_id: str
    digest: str
    workload: dict[str, Any]
    requested_by: str
    key: str
    parent_execution_id: int | None = None
    parent_command_id: str | None = None
    depth: int = 0
    """How many executions are above it: the first one of a family has 0."""
    detached: bool = False
    """Its parent does not wait for it, so it goes on whatever becomes of the parent."""
    rerun_of: int | None = None
    from_step: str | None = None
    """Where a re-run begins; what earlier steps came to is carried over in `results` and `ctx`."""
    ctx: dict[str, Any] = {}
    results: dict[str, Any] = {}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a stage's rows."""

    frames: int = 0
    frames_failed: int = 0
    rows_done: int = 0
    rows_failed: int = 0
    rows_handed_out: int = 0
    """Rows that somebody was given to work on, whatever came of them."""
    errors: int = 0
    problem: str | None = None
    """Which row was the first that failed, and why."""
    ctx: dict[str, Any] = {}
    results: list[Any] | None = None
    """The rows' results in order, when they are few enough to stand in the event."""
    manifest: PayloadRef | None = None
    """Where the frames' results are, when they are not."""
    near: Place | None = None
    """The node that holds most of what the manifest names."""
    near_bytes: int = 0


class CommandEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report about a command, or a child's end on which it was suspended."""

    command_id: str
    attempt: int
    status: Literal["ok", "error"]
    data: Any = None
    ref: PayloadRef | None = None
    selected: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    """What the other tasks of a list came to, where somebody reads them, and in `last_task` the one that `data` are of."""
    last_task: str | None = None
    error: dict[str, Any] | None = None
    helpers: dict[str, Any] = {}
    ctx_writes: dict[str, Any] = {}
    swallowed: int = 0
    tries: list[dict[str, Any]] = []
    accumulate: dict[str, Any] | None = None
    artifacts: tuple[PayloadRef, ...] = ()
    """What its tasks put into the payload store to stay there, also where the command failed later."""
    duration_ms: float = 0.0
    tally: Tally | None = None
    near: Place | None = None
    """Where the worker is that stored the result `ref` stands for; filled in by whoever takes the report."""


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants the execution to stop."""

    reason: str
    by: str
    cascade: bool = True
    """Whether what it started is to stop with it."""


class OutOfTime(msgspec.Struct, frozen=True):
    """The time that its playbook gives an execution is over."""


class Doubt(msgspec.Struct, frozen=True):
    """Nothing seems to be under way: go on if anything can, end otherwise."""


Trigger = Start | CommandEnded | Cancelled | OutOfTime | Doubt
