"""Many appends of one organization laid out as the arrays of `noetl.append_v1`, and its answers read back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from noetl.errors import AlreadyRecorded, KeyReused, NoetlError, PayloadCollected, VersionConflict
from noetl.ledger.normalizer import Row, content_digest, normalize
from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event import Appended, Draft
from noetl.model.stream import Scope, Stream
from noetl.model.validate import validate

_ONCE = frozenset(kind.name for kind in EVENT_TYPES if kind.once_per)
_TYPE, _KEY, _PAYLOAD, _FIELDS = 12, 16, 23, 24
_ROW_WIDTH = 32

APPEND_SQL = "SELECT outcome, first_version, first_position, event_ids FROM noetl.append_v1({})".format(  # noqa: S608 - only placeholders go in
    ", ".join(f"${number}" for number in range(1, 16 + 2 + _ROW_WIDTH))
)


@dataclass(eq=False)
class Request:
    """One append, checked and normalized, waiting for its answer."""

    stream: Stream
    event_ids: tuple[int, ...]
    rows: list[Row]
    keys: list[tuple[str, int]]
    expected_version: int | None
    digest: bytes
    answer: asyncio.Future[Appended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def request(stream: Stream, drafts: Sequence[Draft], expected_version: int | None) -> Request:
    """Check an append and make it ready to send."""
    validate(stream, drafts)
    rows = [normalize(draft) for draft in drafts]
    keys = [(row[_KEY], ordinal) for ordinal, row in enumerate(rows, 1) if row[_KEY] is not None]
    return Request(
        stream=stream,
        event_ids=tuple(draft.event_id for draft in drafts),
        rows=rows,
        keys=keys,
        expected_version=expected_version,
        digest=content_digest(stream.stream_id, rows) if keys else b"",
    )


def arguments(scope: Scope, requests: Sequence[Request], key_ttl: timedelta) -> list[Any]:
    """Lay requests out as the arguments of `APPEND_SQL`."""
    streams = sorted({item.stream.stream_id: item.stream for item in requests}.items())
    slots = {stream_id: slot for slot, (stream_id, _) in enumerate(streams, 1)}
    keys = sorted((key, append, ordinal) for append, item in enumerate(requests, 1) for key, ordinal in item.keys)
    numbered = [
        (append, ordinal, *row) for append, item in enumerate(requests, 1) for ordinal, row in enumerate(item.rows, 1)
    ]
    rows = [row for item in requests for row in item.rows]
    return [
        scope.tenant_id,
        scope.organization_id,
        key_ttl,
        any(row[_TYPE] in _ONCE for row in rows),
        any(row[_PAYLOAD] is not None or row[_FIELDS] is not None for row in rows),
        [stream_id for stream_id, _ in streams],
        [stream.shard for _, stream in streams],
        [stream.execution_id for _, stream in streams],
        [slots[item.stream.stream_id] for item in requests],
        [item.expected_version for item in requests],
        [len(item.rows) for item in requests],
        [item.digest for item in requests],
        [key for key, _, _ in keys],
        [append for _, append, _ in keys],
        [ordinal for _, _, ordinal in keys],
        *map(_column, zip(*numbered, strict=True)),
    ]


def _column(values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    # unnest fills a missing array up with nulls, so a column that says nothing need not be sent.
    return None if values.count(None) == len(values) else values


def answer_of(
    item: Request, outcome: int, version: int, position: int, event_ids: list[int] | None
) -> Appended | NoetlError:
    """Read one outcome of `noetl.append_v1`."""
    name = item.stream.stream_id
    if outcome in (0, 1):
        count = len(item.rows)
        return Appended(
            first_version=version,
            last_version=version + count - 1,
            shard=item.stream.shard,
            first_position=position,
            last_position=position + count - 1,
            event_ids=item.event_ids if event_ids is None else tuple(event_ids),
            repeated=outcome == 1,
        )
    if outcome == 2:
        return VersionConflict(
            f"stream {name} is at version {version - 1}, not at {item.expected_version}",
            stream_id=name,
            version=version - 1,
            expected_version=item.expected_version,
        )
    if outcome == 3:
        return KeyReused(
            f"an idempotency key of this append to {name} was used before with other content",
            keys=[key for key, _ in item.keys],
        )
    if outcome == 4:
        return AlreadyRecorded(f"a fact of this append to {name} may stand once per execution and stands already")
    return PayloadCollected(f"a payload of this append to {name} was garbage-collected", hint="store it again")
