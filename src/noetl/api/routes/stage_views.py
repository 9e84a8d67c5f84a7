"""What the routes of stages take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

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


class FramesQuery(Body, frozen=True, kw_only=True):
    """Where to go on, and how many to give."""

    from_index: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class FrameView(View, frozen=True, kw_only=True):
    """A frame that has not ended."""

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


class FramesPage(View, frozen=True, kw_only=True):
    """Open frames by index; `next_index` is null on the last page."""

    frames: list[FrameView]
    next_index: int | None
