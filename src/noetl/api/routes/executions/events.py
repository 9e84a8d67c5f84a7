"""Facts of the user's own, and single events. The types of the product itself are written by the engine alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, field

from noetl.api.endpoint import READERS, WRITERS, Answer, Call, Routes
from noetl.api.problems import Problem, described
from noetl.api.wire import Body, Id, Name, ReadTokenText, View
from noetl.errors import InputError, NoetlError, NotFound
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.replay.as_of import AsOf, resolve_organization
from noetl.model.event import Draft, to_json
from noetl.model.event_type import OPEN_PREFIX
from noetl.model.ids import organization_root_id, parse_id
from noetl.model.mark import ReadToken

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
    execution_id: str
    """Whose event it is; without one of its own, the organization's root. Naming it makes reading the event quick."""
    stream_id: str
    shard: int
    stream_version: int | None
    """Null for a fact that the stream has and the ledger will have in a moment."""
    position: int | None
    repeated: bool
    read_token: ReadTokenText


class EventBatch(Body, frozen=True, kw_only=True):
    """Facts that are recorded together but each on its own; those of one stream in their order."""

    events: Annotated[list[BusinessEvent], Meta(min_length=1, max_length=1000)]


class BatchItem(View, frozen=True, kw_only=True):
    """Where one fact stands, or why it does not."""

    recorded: Recorded | None = None
    problem: Problem | None = None


class BatchRecorded(View, frozen=True, kw_only=True):
    """What became of the facts, in their order."""

    results: list[BatchItem]


class EventQuery(Body, frozen=True, kw_only=True):
    """Whose event it is; naming the execution spares a search."""

    execution_id: Id | None = None


@routes.post("/api/events", WRITERS, status=201, keyed=True)
async def record_event(call: Call, body: BusinessEvent) -> Answer | Recorded:
    """Record a `business.*` fact. With an Idempotency-Key, the same fact sent again is recorded once."""
    recorded = await _recorded(call, body, call.key)
    return Answer(recorded, 200 if recorded.repeated else 201)


@routes.post("/api/events/batch", WRITERS, keyed=True)
async def record_events(call: Call, body: EventBatch) -> BatchRecorded:
    """Record several `business.*` facts; each succeeds or fails by itself, and a batch sent again is recorded once."""
    streams: dict[str, list[int]] = {}
    for number, event in enumerate(body.events):
        streams.setdefault(_stream_id(event), []).append(number)
    results = [BatchItem()] * len(body.events)

    async def in_order(numbers: list[int]) -> None:
        for number in numbers:
            key = None if call.key is None else f"{call.key}/{number}"
            try:
                results[number] = BatchItem(recorded=await _recorded(call, body.events[number], key))
            except NoetlError as problem:
                results[number] = BatchItem(problem=described(problem))

    # Streams at once: what they append meanwhile is written by few statements.
    await asyncio.gather(*map(in_order, streams.values()))
    return BatchRecorded(results=results)


async def _recorded(call: Call, body: BusinessEvent, key: str | None) -> Recorded:
    made = _draft(call, body, key)
    if body.execution_id is not None or made.stream.execution_id is not None:
        await call.services.known_executions.check(call.scope, made.execution_id)
    draft, facts = await externalize(call.services.payloads, made), call.services.facts
    if facts is not None and facts.takes(draft):
        token = await facts.record(draft)
        return Recorded(
            event_id=str(draft.event_id),
            execution_id=str(draft.execution_id),
            stream_id=draft.stream_id,
            shard=token.shard,
            stream_version=None,
            position=None,
            repeated=False,
            read_token=str(token),
        )
    answer = await call.services.ledger.append(draft.stream, [draft])
    return Recorded(
        event_id=str(answer.event_ids[0]),
        execution_id=str(draft.execution_id),
        stream_id=draft.stream_id,
        shard=answer.shard,
        stream_version=answer.first_version,
        position=answer.first_position,
        repeated=answer.repeated,
        read_token=str(ReadToken(draft.execution_id, answer.event_ids[0], answer.shard)),
    )


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


def _draft(call: Call, body: BusinessEvent, key: str | None) -> Draft:
    scope = call.scope
    execution_id = None if body.execution_id is None else parse_id(body.execution_id)
    stream = scope.stream(_stream_id(body))
    if stream.problems():
        raise InputError(
            "; ".join(stream.problems()), hint="name a stream_id of plain letters, digits and . _ : @ + - /"
        )
    if body.event_time is not None and body.event_time.tzinfo is None:
        raise InputError("event_time has no offset", hint="write it like 2026-05-16T12:34:56Z")
    if execution_id is not None and stream.execution_id not in (None, execution_id):
        raise InputError(f"the stream {stream.stream_id[:200]} is of another execution than {execution_id}")
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


def _stream_id(body: BusinessEvent) -> str:
    within = "" if body.execution_id is None else f"execution/{parse_id(body.execution_id)}/"
    return body.stream_id or f"{within}{body.event_type.split('.')[0]}/{body.aggregate_id}"
