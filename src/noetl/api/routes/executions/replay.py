"""State as it was at any point, rebuilt from the ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta

from noetl.api.endpoint import READERS, Call, Routes
from noetl.api.wire import Body, Id, Name
from noetl.errors import Denied, EventsWait, InputError
from noetl.kernel.replay.as_of import AsOf
from noetl.kernel.replay.replay import ReplayedState
from noetl.model.ids import parse_id
from noetl.model.mark import execution_token

routes = Routes("replay")


class ReplayQuery(Body, frozen=True, kw_only=True):
    """What to rebuild, as of which point: at most one of the three; the head when none is given."""

    execution_id: Id | None = None
    tenant_id: Name | None = None
    organization_id: Name | None = None
    as_of_event_id: Id | None = None
    as_of_position: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    as_of_time: datetime | None = None
    projection: Name = "execution"
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    resolve_payloads: bool = False


@routes.get("/api/replay/state", READERS)
async def get_replayed_state(call: Call, query: ReplayQuery) -> dict[str, Any]:
    """Rebuild the state of an execution, or of the organization when none is named, with its checksums."""
    _check_scope(call, query)
    execution_id = None if query.execution_id is None else parse_id(query.execution_id)
    try:
        state = await _replayed(call, query, execution_id)
    except EventsWait:
        # It was started a moment ago: whoever knows its id need not send a token to find it.
        assert execution_id is not None
        begun = execution_token(execution_id, 1)
        await call.services.ledger.covered(begun, call.scope, call.services.read_token_seconds)
        state = await _replayed(call, query, execution_id)
    shown = state.to_json()
    shown["upcaster_registry_digest"] = shown.pop("upcaster_digest")
    return shown


async def _replayed(call: Call, query: ReplayQuery, execution_id: int | None) -> ReplayedState:
    return await call.services.replay.state(
        call.scope,
        execution_id,
        as_of=_as_of(query),
        projection=query.projection,
        limit=query.limit,
        resolve_payloads=query.resolve_payloads,
    )


def _check_scope(call: Call, query: ReplayQuery) -> None:
    asked = (query.tenant_id or call.scope.tenant_id, query.organization_id or call.scope.organization_id)
    if asked != (call.scope.tenant_id, call.scope.organization_id):
        raise Denied(f"this token is not of {asked[0]}/{asked[1]}", hint="leave tenant_id and organization_id out")


def _as_of(query: ReplayQuery) -> AsOf:
    if query.as_of_time is not None and query.as_of_time.tzinfo is None:
        raise InputError("as_of_time has no offset", hint="write it like 2026-05-16T12:34:56Z")
    return AsOf(
        position=query.as_of_position,
        event_id=None if query.as_of_event_id is None else parse_id(query.as_of_event_id),
        time=None if query.as_of_time is None else query.as_of_time.astimezone(UTC),
    )
