"""The event envelope: a `Draft` is what a producer says, an `Event` is the fact the ledger accepted. Values only.

These two classes declare every field of the envelope; see `noetl.model.envelope` for what derives from them.
"""

# Annotations are evaluated with the classes: they are read once at import, and parsing them as text takes longer.
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from noetl.model.envelope.field import (
    ID,
    INDEX,
    OBJECT,
    ORDINAL,
    REFERENCE,
    SHARD,
    TEXT,
    TIME,
    VALUE,
    VERSION,
    Field,
    Kind,
    fields_of,
)
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

    event_id: Annotated[int, Field(2, ID, fixed=True, varies=True)]
    tenant_id: Annotated[str, Field(15, TEXT, "stream", bytewise=True, fixed=True)]
    organization_id: Annotated[str, Field(16, TEXT, "stream", bytewise=True, fixed=True)]
    execution_id: Annotated[int, Field(1, ID, fixed=True, varies=True)]
    stream_id: Annotated[str, Field(17, TEXT, "stream", bytewise=True, fixed=True)]
    aggregate_type: Annotated[str, Field(18, TEXT)]
    aggregate_id: Annotated[str, Field(19, TEXT)]
    event_type: Annotated[str, Field(20, TEXT, bytewise=True)]
    schema_name: Annotated[str, Field(21, TEXT, fixed=True)]
    schema_version: Annotated[int, Field(13, VERSION)]
    event_time: Annotated[datetime, Field(5, TIME, varies=True)]
    producer: Annotated[str, Field(22, TEXT, varies=True)]
    causation_id: Annotated[int | None, Field(7, ID, varies=True)] = None
    correlation_id: Annotated[str | None, Field(23, TEXT, varies=True)] = None
    idempotency_key: Annotated[str | None, Field(24, TEXT)] = None
    parent_execution_id: Annotated[int | None, Field(8, ID)] = None
    catalog_id: Annotated[str | None, Field(25, TEXT)] = None
    node_name: Annotated[str | None, Field(26, TEXT)] = None
    node_type: Annotated[str | None, Field(27, TEXT)] = None
    status: Annotated[str | None, Field(28, TEXT)] = None
    stage_id: Annotated[int | None, Field(9, ID)] = None
    frame_id: Annotated[int | None, Field(10, ID)] = None
    loop_id: Annotated[int | None, Field(11, ID)] = None
    command_id: Annotated[str | None, Field(29, TEXT, bytewise=True)] = None
    shard_id: Annotated[str | None, Field(30, TEXT, bytewise=True)] = None
    current_index: Annotated[int | None, Field(12, INDEX)] = None
    current_item: Annotated[Any, Field(37, VALUE)] = None
    payload_ref: Annotated[PayloadRef | None, Field(38, REFERENCE, digest_column=31)] = None
    fields_ref: Annotated[PayloadRef | None, Field(39, REFERENCE, digest_column=32)] = None
    meta: Annotated[dict[str, Any], Field(34, OBJECT)] = {}
    context: Annotated[dict[str, Any], Field(35, OBJECT)] = {}
    result: Annotated[dict[str, Any], Field(36, OBJECT)] = {}
    error: Annotated[str | None, Field(33, TEXT, limit=INLINE_LIMIT)] = None

    @property
    def stream(self) -> Stream:
        """The stream this event belongs to."""
        return Stream(self.tenant_id, self.organization_id, self.stream_id)


class Event(Draft, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An accepted fact: a draft plus what the ledger gave it."""

    stream_version: Annotated[int, Field(4, ORDINAL, "ledger", fixed=True)]
    shard: Annotated[int, Field(14, SHARD, "stream", fixed=True)]
    position: Annotated[int, Field(3, ORDINAL, "ledger", fixed=True)]
    ingest_time: Annotated[datetime, Field(6, TIME, "ledger")]


FIELDS: Final = fields_of(Event)
"""What is declared about each field, in the order of `Event`."""


def fields_of_kind(*kinds: Kind) -> tuple[str, ...]:
    """Return the names of the fields of some kinds, in the order of `Event`."""
    return tuple(name for name, field in FIELDS.items() if field.kind in kinds)


ID_FIELDS: Final = frozenset(fields_of_kind(ID))
"""64-bit ids: integers in code and SQL, strings in JSON, since JSON numbers are exact to 53 bits only."""
TIME_FIELDS: Final = frozenset(fields_of_kind(TIME))
OBJECT_FIELDS: Final = frozenset(fields_of_kind(OBJECT))
"""Mappings; an empty one is the same as none, and is left out where events are written down."""
REFERENCE_FIELDS: Final = fields_of_kind(REFERENCE)
JSON_FIELDS: Final = fields_of_kind(OBJECT, VALUE, REFERENCE)
"""The fields that stand as JSON text in a row."""
ACCEPTED_FIELDS: Final = Event.__struct_fields__[len(Draft.__struct_fields__) :]
"""What an event has and a draft has not."""
FIXED_FIELDS: Final = tuple(name for name, field in FIELDS.items() if field.fixed)
"""What no upcaster may change."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an append: where its events stand. `repeated` means an earlier append with the same keys wrote them."""

    first_version: int
    last_version: int
    shard: int
    first_position: int
    last_position: int
    event_ids: tuple[int, ...]
    repeated: bool = False


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


_JSON_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(ID_FIELDS, str),
    **dict.fromkeys(TIME_FIELDS, time_text),
    **dict.fromkeys(REFERENCE_FIELDS, msgspec.to_builtins),
}


def to_json(event: Draft) -> dict[str, Any]:
    """Turn an event into plain JSON values: ids as strings, times as RFC 3339, absent fields left out."""
    fields: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value is None or (name in OBJECT_FIELDS and not value):
            continue
        form = _JSON_FORMS.get(name)
        fields[name] = value if form is None else form(value)
    return fields


def from_json(fields: dict[str, Any]) -> Event:
    """Rebuild an event from what `to_json` made of it."""
    return msgspec.convert(_plain(fields), Event)


def draft_from_json(fields: dict[str, Any]) -> Draft:
    """Rebuild a draft from what `to_json` made of it."""
    return msgspec.convert(_plain(fields), Draft)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    plain = dict(fields)
    for name in ID_FIELDS & plain.keys():
        plain[name] = int(plain[name])
    for name in TIME_FIELDS & plain.keys():
        plain[name] = parse_time(plain[name])
    return plain
