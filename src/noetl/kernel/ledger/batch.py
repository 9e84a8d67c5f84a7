"""Many appends of one organization packed as the arguments of `noetl.append`, and its answers read back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple

from noetl.errors import AlreadyRecorded, KeyReused, LeaseLost, NoetlError, PayloadCollected, VersionConflict
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.normalizer import Row, content_digest, leaves, normalize
from noetl.kernel.ledger.transition import FENCE_MODES, WORK_TYPES, Append, Fence, Transition
from noetl.model.catalogue.rows import once_types
from noetl.model.event import REFERENCE_FIELDS, Appended, Draft
from noetl.model.stream import Scope, Stream
from noetl.model.validate import validate

_ONCE = frozenset(once_types())
_references = attrgetter(*REFERENCE_FIELDS)

_CALL = "SELECT outcome, first_version, first_position, event_ids FROM noetl.append('{}', $1, $2, $3, $4, $5, $6, $7, $8, $9)"
APPEND_SQL = _CALL.format("ledger")
PENDING_SQL = _CALL.format("stream")
"""The same decision, its events left waiting for the materializer; their positions are places among the waiting ones."""


class Place(NamedTuple):
    """What a stream's name says."""

    scope: Scope
    shard: int
    execution_id: int | None


@lru_cache(65_536)
def _place(stream: Stream) -> Place:
    # A process appends to the same few thousand streams over and over.
    return Place(stream.scope, stream.shard, stream.execution_id)


@dataclass(eq=False)
class Part:
    """The events for one stream, checked and normalized."""

    stream: Stream
    place: Place
    event_ids: tuple[int, ...]
    drafts: tuple[Draft, ...]
    rows: list[Row]
    """The drafts, normalized."""
    keys: list[tuple[str, int]]
    expected_version: int | None
    digest: bytes
    leaves: bytes
    """The SHA-256 of each event, joined."""


@dataclass(eq=False)
class Request:
    """Appends that stand or fall together, waiting for their answers."""

    parts: tuple[Part, ...]
    fences: tuple[Fence, ...] = ()
    works: bool = False
    """Whether its events change rows of open work."""
    waits: bool = False
    """Whether its events were left waiting for the materializer."""
    answer: asyncio.Future[tuple[Appended, ...]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def scope(self) -> Scope:
        """The organization all parts belong to."""
        return self.parts[0].place.scope

    @property
    def size(self) -> int:
        """How many events it has."""
        return sum(len(part.rows) for part in self.parts)


def request(stream: Stream, drafts: Sequence[Draft], expected_version: int | None, checks: Checks) -> Request:
    """Check an append and make it ready to send."""
    return Request((_part(Append(stream, drafts, expected_version), checks),))


def work_request(transition: Transition, checks: Checks) -> Request:
    """Check a transition and make it ready to send."""
    parts = tuple(_part(append, checks, works=True) for append in transition.appends)
    return Request(parts, transition.fences, works=True)


def _part(append: Append, checks: Checks, *, works: bool = False) -> Part:
    stream, drafts, expected_version = append
    validate(stream, drafts)
    checks.look(drafts)
    rows = [normalize(draft) for draft in drafts]
    keys = [
        (draft.idempotency_key, ordinal) for ordinal, draft in enumerate(drafts, 1) if draft.idempotency_key is not None
    ]
    event_ids = tuple(draft.event_id for draft in drafts)
    place = _place(stream)
    return Part(
        stream=stream,
        place=place,
        event_ids=event_ids,
        drafts=tuple(drafts),
        rows=rows,
        keys=keys,
        expected_version=expected_version,
        digest=b"" if not keys else _request_digest(event_ids) if works else content_digest(stream.stream_id, rows),
        leaves=leaves(stream, place.shard, rows),
    )


def _request_digest(event_ids: Sequence[int]) -> bytes:
    # Whoever reports the end of work again is stopped by the fence; only the very same request is a repetition.
    return sha256(repr(list(event_ids)).encode()).digest()


def arguments(scope: Scope, requests: Sequence[Request], key_ttl: timedelta) -> list[Any]:
    """Lay requests out as the arguments of `APPEND_SQL`."""
    parts = [(group, part) for group, item in enumerate(requests, 1) for part in item.parts]
    slots = {name: slot for slot, name in enumerate(sorted({part.stream.stream_id for _, part in parts}), 1)}
    fences = [
        (group, fence.table, fence.execution_id, fence.id, fence.attempt, fence.token, FENCE_MODES[fence.mode])
        for group, item in enumerate(requests, 1)
        for fence in item.fences
    ]
    if len(fences) > 1:
        fences.sort(key=_fence_place)
    drafts = [draft for _, part in parts for draft in part.drafts]
    works = requests[0].works
    types = {draft.event_type for draft in drafts}
    return [
        scope.tenant_id,
        scope.organization_id,
        key_ttl,
        # A change of work is guarded by its stream's version and by the unique indexes; looking first would double its time.
        not works and not types.isdisjoint(_ONCE),
        any(reference is not None for draft in drafts for reference in _references(draft)),
        sorted(types & WORK_TYPES) if works else [],
        fences,
        [_packed(group, slots[part.stream.stream_id], part) for group, part in parts],
        [
            (append, ordinal, *row)
            for append, (_, part) in enumerate(parts, 1)
            for ordinal, row in enumerate(part.rows, 1)
        ],
    ]


def _fence_place(fence: tuple[Any, ...]) -> tuple[Any, ...]:
    group, table, execution_id, name, *_ = fence
    return (table, execution_id, name, group)


def _packed(group: int, slot: int, part: Part) -> tuple[Any, ...]:
    _, shard, execution_id = part.place
    return (
        group,
        slot,
        part.stream.stream_id,
        shard,
        execution_id,
        part.expected_version,
        len(part.rows),
        len(part.keys),
        part.digest,
        part.event_ids,
        part.leaves,
    )


def answers_of(requests: Sequence[Request], rows: Sequence[Any]) -> list[tuple[Appended, ...] | NoetlError]:
    """Read the outcomes of `noetl.append`, one per part, as one answer per request."""
    found: list[tuple[Appended, ...] | NoetlError] = []
    left = iter(rows)
    for item in requests:
        answers = [answer_of(part, *next(left)) for part in item.parts]
        problems = [answer for answer in answers if isinstance(answer, NoetlError)]
        # The part that was refused for itself says why; the others only fell with it.
        found.append(
            next((problem for problem in problems if not isinstance(problem, _FellWithGroup)), problems[0])
            if problems
            else tuple(answer for answer in answers if isinstance(answer, Appended))
        )
    return found


class _FellWithGroup(VersionConflict):
    """Another part of the same change was refused."""


def answer_of(
    part: Part, outcome: int, version: int, position: int, event_ids: list[int] | None
) -> Appended | NoetlError:
    """Read one outcome of `noetl.append`."""
    name = part.stream.stream_id
    if outcome in (0, 1):
        count = len(part.rows)
        return Appended(
            first_version=version,
            last_version=version + count - 1,
            shard=part.place.shard,
            first_position=position,
            last_position=position + count - 1,
            event_ids=part.event_ids if event_ids is None else tuple(event_ids),
            repeated=outcome == 1,
        )
    if outcome == 2:
        return VersionConflict(
            f"stream {name} is at version {version - 1}, not at {part.expected_version}",
            stream_id=name,
            version=version - 1,
            expected_version=part.expected_version,
        )
    if outcome == 3:
        return KeyReused(
            f"an idempotency key of this append to {name} was used before with other content",
            keys=[key for key, _ in part.keys],
        )
    if outcome == 4:
        return AlreadyRecorded(f"a fact of this append to {name} may stand once per execution and stands already")
    if outcome == 5:
        return PayloadCollected(f"a payload of this append to {name} was garbage-collected", hint="store it again")
    if outcome == 6:
        return LeaseLost(f"the lease for this append to {name} belongs to another holder now, or ran out")
    return _FellWithGroup(f"another part of the change to {name} was refused")
