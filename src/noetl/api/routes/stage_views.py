"""What the routes of stages take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from noetl.api.leased import CommandLease
from noetl.api.routes.commands import Locality
from noetl.api.wire import Body, Id, Name, View
from noetl.dispatch.grants import FrameGrant
from noetl.model.payload_ref import PayloadRef


class FrameClaimRequest(Body, frozen=True, kw_only=True):
    """Which slot asks for frames, and for how many. A slot stands where its command was claimed, and frames go to slots:
    a `locality` is taken and changes nothing here.
    """

    lease: CommandLease
    worker_id: Name
    requested_count: Annotated[int, Meta(ge=1, le=100)] = 1
    locality: Locality | None = None


class FrameClaimAnswer(View, frozen=True, kw_only=True):
    """Frames leased to the worker; none when the stage's rows are all handed out."""

    frames: list[FrameGrant]


class RowsRequest(Body, frozen=True, kw_only=True):
    """Rows that a slot claimed in the user's database, stored as a payload."""

    lease: CommandLease
    worker_id: Name
    rows: PayloadRef
    row_count: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class FrameAnswer(View, frozen=True, kw_only=True):
    """The frame that was made, leased to the worker."""

    frame: FrameGrant


class CtxRequest(Body, frozen=True, kw_only=True):
    """Which slot asks."""

    lease: CommandLease


class CtxAnswer(View, frozen=True, kw_only=True):
    """What committed frames of the loop have set."""

    ctx: dict[str, Any]


class StageQuery(Body, frozen=True, kw_only=True):
    """Whose stage it is; naming the execution spares a search for one that is closed."""

    execution_id: Id | None = None


class SoFarView(View, frozen=True, kw_only=True):
    """What workers say came of a stage's rows up to now, those of frames included that are not committed yet."""

    rows_done: int
    rows_failed: int
    rows_per_second: float
    """How quickly rows of such frames are worked off."""


class StageView(View, frozen=True, kw_only=True):
    """A stage: how far its rows are handed out and what came of them."""

    stage_id: str
    execution_id: str
    step: str
    kind: str
    status: str
    frames_minted: int
    frames_open: int
    frames_failed: int
    rows_done: int
    rows_failed: int
    total_rows: int | None = None
    errors: int = 0
    frame_policy: dict[str, Any] = field(default_factory=dict)
    so_far: SoFarView | None = None
    """A hint for people; null where nothing more is known than what is committed."""


class FramesQuery(Body, frozen=True, kw_only=True):
    """Which frames, where to go on, and how many to give."""

    status: Literal["open", "ended", "committed", "failed"] = "open"
    """`failed` are frames that have ended and of which a row failed, all or some."""
    execution_id: Id | None = None
    """Whose stage it is; for frames that have ended, naming the execution spares a search."""
    from_index: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class RowErrorView(View, frozen=True, kw_only=True):
    """Why a row failed."""

    index: int
    message: str


class FrameView(View, frozen=True, kw_only=True):
    """A frame: who has it, or what it came to."""

    frame_id: str
    execution_id: str
    status: str
    frame_index: int
    first_index: int
    row_count: int
    attempt: int
    owner_worker: str | None
    lease_until: datetime | None
    last_heartbeat: datetime | None
    ended_at: datetime | None = None
    failed_count: int = 0
    error: str | None = None
    """Why the frame failed as a whole."""
    errors: list[RowErrorView] = field(default_factory=list)
    """The first few rows that failed."""


class FramesPage(View, frozen=True, kw_only=True):
    """Frames by index; `next_index` is null on the last page."""

    frames: list[FrameView]
    next_index: int | None
