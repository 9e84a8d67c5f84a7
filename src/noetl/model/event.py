"""The event envelope: a `Draft` is what a producer says, an `Event` is the fact the ledger accepted. Values only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Stream

INLINE_LIMIT = 65_536
"""Bytes of JSON an event row may carry in total; more goes to the payload store."""

_ZERO = timedelta(0)


class Draft(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a producer wants recorded. `validate` (in `noetl.model.validate`) checks every invariant.

    `payload_ref` is the data the fact is about; `fields_ref` holds context, result and current_item fields that were
    too large to stand in the row.
    """

    event_id: int
    tenant_id: str
    organization_id: str
    execution_id: int
    stream_id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    schema_name: str
    schema_version: int
    event_time: datetime
    producer: str
    causation_id: int | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    parent_execution_id: int | None = None
    catalog_id: str | None = None
    node_name: str | None = None
    node_type: str | None = None
    status: str | None = None
    stage_id: int | None = None
    frame_id: int | None = None
    loop_id: int | None = None
    command_id: str | None = None
    shard_id: str | None = None
    current_index: int | None = None
    current_item: Any = None
    payload_ref: PayloadRef | None = None
    fields_ref: PayloadRef | None = None
    meta: dict[str, Any] = {}
    context: dict[str, Any] = {}
    result: dict[str, Any] = {}
    error: str | None = None

    @property
    def stream(self) -> Stream:
        """The stream this event belongs to."""
        return Stream(self.tenant_id, self.organization_id, self.stream_id)


class Event(Draft, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An accepted fact: a draft plus what the ledger gave it."""

    stream_version: int
    shard: int
    position: int
    ingest_time: datetime


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an append: where its events stand. `repeated` means an earlier append with the same keys wrote them."""

    first_version: int
    last_version: int
    shard: int
    first_position: int
    last_position: int
    event_ids: tuple[int, ...]
    repeated: bool = False


ID_FIELDS = frozenset(
    {"event_id", "execution_id", "causation_id", "parent_execution_id", "stage_id", "frame_id", "loop_id"}
)
"""64-bit ids: integers in code and SQL, strings in JSON, since JSON numbers are exact to 53 bits only."""

TIME_FIELDS = frozenset({"event_time", "ingest_time"})


def is_utc(value: datetime) -> bool:
    """Tell whether a time carries UTC."""
    return value.tzinfo is UTC or (value.tzinfo is not None and value.utcoffset() == _ZERO)


def time_text(value: datetime) -> str:
    """Print a time as RFC 3339 UTC with microseconds, the one form used in JSON."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time; a time without an offset is refused, since it would mean different instants."""
    value = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if value.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset; write it like 2026-05-16T12:34:56Z")
    return value.astimezone(UTC)


def to_json(event: Draft) -> dict[str, Any]:
    """Turn an event into plain JSON values: ids as strings, times as RFC 3339, absent fields left out."""
    fields: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value is None or (name in {"meta", "context", "result"} and not value):
            continue
        if name in ID_FIELDS:
            value = str(value)
        elif name in TIME_FIELDS:
            value = time_text(value)
        elif name in {"payload_ref", "fields_ref"}:
            value = msgspec.to_builtins(value)
        fields[name] = value
    return fields


def from_json(fields: dict[str, Any]) -> Event:
    """Rebuild an event from what `to_json` made of it."""
    plain = dict(fields)
    for name in ID_FIELDS & plain.keys():
        plain[name] = int(plain[name])
    for name in TIME_FIELDS & plain.keys():
        plain[name] = parse_time(plain[name])
    return msgspec.convert(plain, Event)
