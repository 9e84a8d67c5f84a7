"""What had to follow from events and could not be done: shown, and armed again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from noetl.api.endpoint import READERS, WRITERS, Call, Routes
from noetl.api.routes.dags import pipelines_of
from noetl.api.wire import Body, View

routes = Routes("outbox")


class DeadQuery(Body, frozen=True, kw_only=True):
    """How many to give."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class RearmRequest(Body, frozen=True, kw_only=True):
    """Which dead row to deliver again; all of them unless told."""

    outbox_id: UUID | None = None


class DeadRowView(View, frozen=True, kw_only=True):
    """One thing that could not be done."""

    outbox_id: str
    kind: str
    payload: dict[str, Any]
    execution_id: str
    attempts: int
    last_error: str | None
    created_at: datetime


class DeadRows(View, frozen=True, kw_only=True):
    """Rows that were given up, the oldest first."""

    dead: list[DeadRowView]


class RearmAnswer(View, frozen=True, kw_only=True):
    """How many rows will be delivered again."""

    rearmed: int


@routes.get("/api/outbox/dead", READERS)
async def list_dead_rows(call: Call, query: DeadQuery) -> DeadRows:
    """List what was given up, the oldest first."""
    rows = await pipelines_of(call).engine.outbox.list_dead(call.scope, query.limit)
    return DeadRows(
        dead=[
            DeadRowView(
                outbox_id=row.outbox_id,
                kind=row.kind,
                payload=row.payload,
                execution_id=str(row.execution_id),
                attempts=row.attempts,
                last_error=row.last_error,
                created_at=row.created_at,
            )
            for row in rows
        ]
    )


@routes.post("/api/outbox/rearm", WRITERS)
async def rearm_dead_rows(call: Call, body: RearmRequest | None = None) -> RearmAnswer:
    """Let a dead row, or all of them, be delivered again."""
    chosen = None if body is None or body.outbox_id is None else str(body.outbox_id)
    return RearmAnswer(rearmed=await pipelines_of(call).engine.outbox.rearm(call.scope, chosen))
