"""Many appends of one organization laid out as the arrays of `noetl.append_v2`, and its answers read back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any

from noetl.errors import AlreadyRecorded, KeyReused, LeaseLost, NoetlError, PayloadCollected, VersionConflict
from noetl.ledger.normalizer import Row, content_digest, normalize
from noetl.ledger.transition import FENCE_MODES, WORK_TYPES, Append, Fence, Transition
from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event import Appended, Draft
from noetl.model.stream import Scope, Stream
from noetl.model.validate import validate

_ONCE = frozenset(kind.name for kind in EVENT_TYPES if kind.once_per)
_TYPE, _KEY, _PAYLOAD, _FIELDS = 12, 16, 23, 24
_ROW_WIDTH = 32
_BEFORE_ROWS = 24

APPEND_SQL = "SELECT outcome, first_version, first_position, event_ids FROM noetl.append_v2({})".format(  # noqa: S608 - only placeholders go in
    ", ".join(f"${number}" for number in range(1, _BEFORE_ROWS + 2 + _ROW_WIDTH + 1))
)


@dataclass(eq=False)
class Part:
    """The events for one stream, checked and normalized."""

    stream: Stream
    event_ids: tuple[int, ...]
    rows: list[Row]
    keys: list[tuple[str, int]]
    expected_version: int | None
    digest: bytes


@dataclass(eq=False)
class Request:
    """Appends that stand or fall together, waiting for their answers."""

    parts: tuple[Part, ...]
    fences: tuple[Fence, ...] = ()
    works: bool = False
    """Whether its events change rows of open work."""
    answer: asyncio.Future[tuple[Appended, ...]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def scope(self) -> Scope:
        """The organization all parts belong to."""
        return self.parts[0].stream.scope

    @property
    def size(self) -> int:
        """How many events it has."""
        return sum(len(part.rows) for part in self.parts)


def request(stream: Stream, drafts: Sequence[Draft], expected_version: int | None) -> Request:
    """Check an append and make it ready to send."""
    return Request((_part(Append(stream, drafts, expected_version)),))


def work_request(transition: Transition) -> Request:
    """Check a transition and make it ready to send."""
    return Request(tuple(_part(append, works=True) for append in transition.appends), transition.fences, works=True)


def _part(append: Append, *, works: bool = False) -> Part:
    stream, drafts, expected_version = append
    validate(stream, drafts)
    rows = [normalize(draft) for draft in drafts]
    keys = [(row[_KEY], ordinal) for ordinal, row in enumerate(rows, 1) if row[_KEY] is not None]
    return Part(
        stream=stream,
        event_ids=tuple(draft.event_id for draft in drafts),
        rows=rows,
        keys=keys,
        expected_version=expected_version,
        digest=_digest(stream, rows, works=works) if keys else b"",
    )


def _digest(stream: Stream, rows: list[Row], *, works: bool) -> bytes:
    # Whoever reports the end of work again is stopped by the fence; only the very same request is a repetition.
    return (
        sha256(repr([row[:2] for row in rows]).encode()).digest() if works else content_digest(stream.stream_id, rows)
    )


def arguments(scope: Scope, requests: Sequence[Request], key_ttl: timedelta) -> list[Any]:
    """Lay requests out as the arguments of `APPEND_SQL`."""
    parts = [(group, part) for group, item in enumerate(requests, 1) for part in item.parts]
    streams = sorted({part.stream.stream_id: part.stream for _, part in parts}.items())
    slots = {stream_id: slot for slot, (stream_id, _) in enumerate(streams, 1)}
    keys = sorted((key, append, ordinal) for append, (_, part) in enumerate(parts, 1) for key, ordinal in part.keys)
    fences = sorted(
        (
            (fence.table, fence.execution_id, fence.id, group, fence)
            for group, item in enumerate(requests, 1)
            for fence in item.fences
        ),
        key=lambda placed: placed[:4],
    )
    numbered = [
        (append, ordinal, *row) for append, (_, part) in enumerate(parts, 1) for ordinal, row in enumerate(part.rows, 1)
    ]
    rows = [row for _, part in parts for row in part.rows]
    works = requests[0].works
    return [
        scope.tenant_id,
        scope.organization_id,
        key_ttl,
        # A change of work is guarded by its stream's version and by the unique indexes; looking first would double its time.
        not works and any(row[_TYPE] in _ONCE for row in rows),
        any(row[_PAYLOAD] is not None or row[_FIELDS] is not None for row in rows),
        sorted({row[_TYPE] for row in rows} & WORK_TYPES) if works else [],
        [group for _, _, _, group, _ in fences],
        [table for table, _, _, _, _ in fences],
        [execution_id for _, execution_id, _, _, _ in fences],
        [name for _, _, name, _, _ in fences],
        [fence.attempt for _, _, _, _, fence in fences],
        [fence.token for _, _, _, _, fence in fences],
        [FENCE_MODES[fence.mode] for _, _, _, _, fence in fences],
        [stream_id for stream_id, _ in streams],
        [stream.shard for _, stream in streams],
        [stream.execution_id for _, stream in streams],
        [group for group, _ in parts],
        [slots[part.stream.stream_id] for _, part in parts],
        [part.expected_version for _, part in parts],
        [len(part.rows) for _, part in parts],
        [part.digest for _, part in parts],
        [key for key, _, _ in keys],
        [append for _, append, _ in keys],
        [ordinal for _, _, ordinal in keys],
        *map(_column, zip(*numbered, strict=True)),
    ]


def _column(values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    # unnest fills a missing array up with nulls, so a column that says nothing need not be sent.
    return None if values.count(None) == len(values) else values


def answers_of(requests: Sequence[Request], rows: Sequence[Any]) -> list[tuple[Appended, ...] | NoetlError]:
    """Read the outcomes of `noetl.append_v2`, one per part, as one answer per request."""
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
    """Read one outcome of `noetl.append_v2`."""
    name = part.stream.stream_id
    if outcome in (0, 1):
        count = len(part.rows)
        return Appended(
            first_version=version,
            last_version=version + count - 1,
            shard=part.stream.shard,
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
