"""What had to follow from events and could not be done: shown, and armed again."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from noetl.api.endpoint import READERS, WRITERS, Call, Routes
from noetl.api.wire import Body, View
from noetl.pipelines.tasks.outbox import DeadRow

routes = Routes("outbox")


class DeadQuery(Body, frozen=True, kw_only=True):
    """How many to give."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class RearmRequest(Body, frozen=True, kw_only=True):
    """Which dead row to deliver again; all of them unless told."""

    outbox_id: UUID | None = None


class DeadRows(View, frozen=True, kw_only=True):
    """Rows that were given up, the oldest first."""

    dead: list[DeadRow]


class RearmAnswer(View, frozen=True, kw_only=True):
    """How many rows will be delivered again."""

    rearmed: int


@routes.get("/api/outbox/dead", READERS)
async def list_dead_rows(call: Call, query: DeadQuery) -> DeadRows:
    """List what was given up, the oldest first."""
    return DeadRows(dead=await call.pipelines().engine.outbox.list_dead(call.scope, query.limit))


@routes.post("/api/outbox/rearm", WRITERS)
async def rearm_dead_rows(call: Call, body: RearmRequest | None = None) -> RearmAnswer:
    """Let a dead row, or all of them, be delivered again."""
    chosen = None if body is None or body.outbox_id is None else str(body.outbox_id)
    return RearmAnswer(rearmed=await call.pipelines().engine.outbox.rearm(call.scope, chosen))
