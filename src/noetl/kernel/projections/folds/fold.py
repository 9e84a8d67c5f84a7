"""What a fold is: which events it listens to, which row an event touches, and what the event makes of that row.

Pure values and functions only; the state that applies them is in `state`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from noetl.errors import FoldFailed
from noetl.model.canonical import SAFE_INTEGER
from noetl.model.catalogue.rows import types_of
from noetl.model.event import Event, time_text
from noetl.model.payload_ref import ErasedRef, PayloadRef

Row = dict[str, Any]
"""Plain JSON values: ids as decimal strings, times as RFC 3339 text."""

EVERY_TYPE: Final = frozenset({"*"})
"""Stands for all event types, the user's own included."""

_LARGE_NUMBER: Final = re.compile(r"[:\[,-][0-9]{16}")
FRAME_TYPES: Final = frozenset(types_of("frame"))
"""What frames tell: nearly all events of a large execution."""

_WITH_MICROSECONDS: Final = len('"2026-05-16T12:34:56.123456Z"')


@dataclass(frozen=True, slots=True)
class Fold:
    """One projection's rules.

    `apply` owns the row it is given: it may change it in place and return it, because copying a row for each of a
    million events would cost more than all the rest. Who needs the old row passes a copy. It returns None when there is
    no row and the event does not open one, and never removes a row.

    A fold *per execution* hears only events in streams under their own execution, and opens a row only on version 1 of
    the stream the row is named after. That is what allows its ended rows to leave memory. Other folds hear events of any
    stream, and their rows stay.
    """

    projection: str
    version: int
    """The declared version of this code. It is part of snapshots and checksums: change it when rows change."""
    event_types: frozenset[str]
    key: Callable[[Event], str | None]
    """The id of the row the event touches; None when it touches none."""
    apply: Callable[[Row | None, Event], Row | None]
    ended: Callable[[Row], bool]
    """An ended row absorbs every later event unchanged."""
    per_execution: bool = False
    ends_with: frozenset[str] = EVERY_TYPE
    """The event types that can end a row; after others it is not asked whether it has ended."""
    run_types: frozenset[str] = frozenset()
    """Types that neither open nor end a row and come in long runs; `apply_run` takes several of them at a time."""
    apply_run: Callable[[Row, list[Event]], None] | None = None
    """Changes an open row as `apply` would with each event in turn."""
    erased: Callable[[Row | None, Event], Row | None] | None = None
    """Takes the place of `apply` for an event whose fields were erased; without it `apply` takes what is left of the event."""

    def listens_to(self, event_type: str) -> bool:
        """Tell whether events of that type matter to this fold."""
        return self.event_types is EVERY_TYPE or event_type in self.event_types

    def may_end_with(self, event_type: str) -> bool:
        """Tell whether an event of that type may end a row."""
        return self.ends_with is EVERY_TYPE or event_type in self.ends_with


class RowKey(NamedTuple):
    """The full name of a row. Two organizations may use the same row id, so the id alone names nothing."""

    tenant_id: str
    organization_id: str
    projection: str
    row_id: str


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """A row with its name and lineage. The positions, in `shard`, are of the first and last event that changed it."""

    key: RowKey
    version: int
    """The version of the fold that made the row."""
    execution_id: int
    """The execution of the event that opened the row."""
    shard: int
    first_position: int
    last_position: int
    row: Row


@lru_cache(maxsize=4096)
def often(number: int) -> str:
    """Write the id of an execution, stage or loop; remembered, because thousands of events in a row carry the same one."""
    return str(number)


@lru_cache(maxsize=4096)
def row_id_within(execution_id: int, number: int) -> str:
    """Name the row of a stage or loop after its stream. Its own number would do only if nobody ever repeated one."""
    return f"{execution_id}/{number}"


@lru_cache(maxsize=4096)
def streams_of(execution_id: int) -> str:
    """Return what the names of all streams below an execution's own begin with."""
    return f"execution/{execution_id}/"


def in_own_execution(event: Event) -> bool:
    """Tell whether the event stands in a stream of the execution it names, and so in that execution's one order."""
    prefix = streams_of(event.execution_id)
    return event.stream_id.startswith(prefix) or event.stream_id == prefix[:-1]


def opens(event: Event, aggregate: str, aggregate_id: int | None) -> bool:
    """Tell whether this is the first event of that aggregate's own stream."""
    return (
        event.stream_version == 1 and event.stream_id == f"{streams_of(event.execution_id)}{aggregate}/{aggregate_id}"
    )


def text_of(number: int | None) -> str | None:
    """Write an id the way rows carry it."""
    return None if number is None else str(number)


def moment(value: datetime) -> str:
    """Write a time exactly as `time_text` does, ten times faster: a large replay writes millions."""
    text = orjson.dumps(value, option=orjson.OPT_UTC_Z)
    if len(text) == _WITH_MICROSECONDS:
        return text[1:-1].decode()
    return time_text(value)  # whole seconds, which orjson shortens, and times not in UTC


def reference(ref: PayloadRef | None) -> Row | None:
    """Write a payload reference the way rows carry it: enough to find the bytes and to prove them."""
    return None if ref is None else {"sha256": ref.sha256, "uri": ref.uri}


def is_erased(event: Event) -> bool:
    """Tell whether fields of the event were erased; an event whose fields nobody has read is refused."""
    if event.fields_ref is None:
        return False
    if isinstance(event.fields_ref, ErasedRef):
        return True
    raise FoldFailed(
        f"event {event.event_id} ({event.event_type}) at position {event.position} of shard {event.shard} has fields "
        f"in the payload store that were not read, under {event.fields_ref.sha256}",
        event_id=str(event.event_id),
        shard=event.shard,
        position=event.position,
    )


def copied(value: Any) -> Any:
    """Copy a JSON value all the way down."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def parsed_row(text: str) -> Row:
    """Read a row from its canonical JSON; writing it again gives the same text.

    There a large float stands as a whole number, which as an integer would be beyond what JSON carries exactly.
    """
    row: Row = json.loads(text, parse_int=_whole) if _LARGE_NUMBER.search(text) else orjson.loads(text)
    return row


def _whole(digits: str) -> int | float:
    number = int(digits)
    return number if abs(number) <= SAFE_INTEGER else float(digits)
