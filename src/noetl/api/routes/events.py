"""Facts of the user's own, and single events. The types of the product itself are written by the engine alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, field

from noetl.api.endpoint import READERS, WRITERS, Answer, Call, Routes
from noetl.api.wire import Body, Id, Name, View
from noetl.errors import InputError, NotFound
from noetl.ledger.rows import COLUMNS, to_events
from noetl.model.event import Draft, to_json
from noetl.model.event_type import OPEN_PREFIX
from noetl.model.ids import organization_root_id, parse_id
from noetl.payloads.envelope import externalize
from noetl.replay.as_of import AsOf, resolve_organization

routes = Routes("events")

_BY_EXECUTION = f"SELECT {COLUMNS} FROM noetl.event WHERE execution_id = $1 AND event_id = $2"  # noqa: S608
_AT_POSITIONS = f"""
SELECT {COLUMNS} FROM noetl.event WHERE event_id = $1
AND (shard, position) IN (SELECT shard, at FROM unnest($2::smallint[], $3::bigint[]) AS cut (shard, at))
"""  # noqa: S608


class BusinessEvent(Body, frozen=True, kw_only=True):
    """A fact about a thing of the user's own. All facts about one thing should stand in one stream."""

    event_type: Annotated[str, Meta(pattern=r"^business\.[A-Za-z0-9._-]{1,200}$")]
    aggregate_id: Name
    aggregate_type: Name = "business_object"
    stream_id: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    """By default a stream named after the thing, or after its execution if one is named."""
    execution_id: Id | None = None
    schema_version: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1
    event_time: datetime | None = None
    causation_id: Id | None = None
    correlation_id: Name | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)


class Recorded(View, frozen=True, kw_only=True):
    """Where the fact stands; `repeated` when the same key recorded it before."""

    event_id: str
    stream_id: str
    stream_version: int
    shard: int
    position: int
    repeated: bool


class EventQuery(Body, frozen=True, kw_only=True):
    """Whose event it is; naming the execution spares a search."""

    execution_id: Id | None = None


@routes.post("/api/events", WRITERS, status=201, keyed=True)
async def record_event(call: Call, body: BusinessEvent) -> Answer | Recorded:
    """Record a `business.*` fact. With an Idempotency-Key, the same fact sent again is recorded once."""
    draft = await externalize(call.services.payloads, _draft(call, body))
    answer = await call.services.ledger.append(draft.stream, [draft])
    recorded = Recorded(
        event_id=str(answer.event_ids[0]),
        stream_id=draft.stream_id,
        stream_version=answer.first_version,
        shard=answer.shard,
        position=answer.first_position,
        repeated=answer.repeated,
    )
    return Answer(recorded, 200 if answer.repeated else 201)


@routes.get("/api/events/{event_id}", READERS)
async def get_event(call: Call, event_id: int, query: EventQuery) -> dict[str, Any]:
    """Return one event as it stands in the ledger."""
    database = call.services.database
    if query.execution_id is not None:
        async with database.transaction(call.scope) as connection:
            rows = await connection.fetch(_BY_EXECUTION, parse_id(query.execution_id), event_id)
    else:
        mark = await resolve_organization(call.services.history, database, call.scope, AsOf(event_id=event_id))
        async with database.transaction(call.scope) as connection:
            rows = await connection.fetch(
                _AT_POSITIONS, event_id, list(range(len(mark.positions))), list(mark.positions)
            )
    if not rows:
        raise NotFound(f"there is no event {event_id}")
    return to_json(to_events(rows)[0])


def _draft(call: Call, body: BusinessEvent) -> Draft:
    scope, key = call.scope, call.key
    execution_id = None if body.execution_id is None else parse_id(body.execution_id)
    within = "" if execution_id is None else f"execution/{execution_id}/"
    stream = scope.stream(body.stream_id or f"{within}{body.event_type.split('.')[0]}/{body.aggregate_id}")
    if stream.problems():
        raise InputError(
            "; ".join(stream.problems()), hint="name a stream_id of plain letters, digits and . _ : @ + - /"
        )
    if body.event_time is not None and body.event_time.tzinfo is None:
        raise InputError("event_time has no offset", hint="write it like 2026-05-16T12:34:56Z")
    owner = stream.execution_id or execution_id or organization_root_id(scope.tenant_id, scope.organization_id)
    return Draft(
        call.services.mint(),
        scope.tenant_id,
        scope.organization_id,
        owner,
        stream.stream_id,
        body.aggregate_type,
        body.aggregate_id,
        body.event_type,
        f"noetl.{body.event_type}",
        body.schema_version,
        (body.event_time or datetime.now(UTC)).astimezone(UTC),
        call.services.producer,
        causation_id=None if body.causation_id is None else parse_id(body.causation_id),
        correlation_id=body.correlation_id,
        idempotency_key=None if key is None else f"{OPEN_PREFIX}{key}",
        meta=body.meta,
        context=body.context,
        result=body.result,
    )
