"""Facts and their fields: what follows from events of given types, where each value stands, and of what kind it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from noetl.engine.tools.outcome import ProblemKind
from noetl.errors import InputError
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.rows import types_of_attempts

Kind = Literal["time", "number", "category", "identity", "text"]

TIMES: Final = frozenset({"event_time", "ingest_time"})
HARMLESS: Final = frozenset({"aggregate_type", "event_type", "node_type", "status"})
"""Columns of events that hold words of the product; a closed list of them may be kept."""
IDENTIFYING: Final = frozenset({
    "aggregate_id", "catalog_id", "causation_id", "command_id", "correlation_id", "event_id", "execution_id", "frame_id",
    "idempotency_key", "loop_id", "node_name", "parent_execution_id", "producer", "shard_id", "stage_id", "stream_id",
})  # fmt: skip
FREE: Final = frozenset({"error"})
OBJECTS: Final = frozenset({"context", "meta", "payload_ref", "result"})
"""Columns that hold JSON; a field names a place in them, as in `meta.rows`."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PLACE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. :/+-]{0,62}")
_TELLING: Final = re.compile(
    r"(?:^|_)(?:id|ids|uuid|key|keys|token|email|mail|phone|user|users|person|worker|host|node|address|ip|url|uri|path"
    r"|name|names|slug|login|account|tenant|organization|org|customer|patient|by)(?:_|$)|(?:id|uuid)$",
    re.IGNORECASE,
)
"""Names of values that tell who or where, so that only a digest of them may leave."""


@dataclass(frozen=True)
class Field:
    """One value of a fact: its kind, and the places where it stands, of which the first that has a value counts."""

    kind: Kind
    places: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The words a category may be; any other is told as `other`."""

    def __post_init__(self) -> None:
        if not self.places:
            raise InputError("a field needs a place in its events, such as event_time or meta.rows")
        for place in self.places:
            _check_place(self.kind, place)
        if (self.kind == "category") != bool(self.values):
            raise InputError(f"{self.places[0]}: a category, and nothing else, lists the words it may be")
        for word in self.values:
            if not _WORD.fullmatch(word) or word == OTHER:
                raise InputError(f"{self.places[0]}: {word!r} is no word of a category")


OTHER: Final = "other"


def time(*places: str) -> Field:
    """Return a field that holds instants."""
    return Field("time", places)


def number(*places: str) -> Field:
    """Return a field that holds whole numbers; other values count as none."""
    return Field("number", places)


def category(*places: str, values: Iterable[str]) -> Field:
    """Return a field that holds one of a few words known beforehand."""
    return Field("category", places, tuple(values))


def identity(*places: str) -> Field:
    """Return a field that tells who, what or where."""
    return Field("identity", places)


def text(*places: str) -> Field:
    """Return a field that holds text of any kind."""
    return Field("text", places)


def check_name(name: str, what: str) -> None:
    """Refuse a name that is not one of small letters, digits and underscores."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of {what}: small letters, digits and _ (63 at most)")


def _check_place(kind: Kind, place: str) -> None:
    column, *path = place.split(".")
    if column in OBJECTS:
        if not path or not all(_PLACE.fullmatch(part) for part in path):
            raise InputError(f"{place!r} is no place in an event: write it as in meta.rows")
        if kind == "time":
            raise InputError(f"{place!r}: a time is event_time or ingest_time")
        if kind in ("number", "category") and any(_TELLING.search(part) for part in path):
            raise InputError(f"{place!r} may tell who or where, so it is an identity, not a {kind}")
        return
    kinds: dict[str, tuple[Kind, ...]] = {
        **dict.fromkeys(TIMES, ("time",)),
        **dict.fromkeys(HARMLESS, ("category", "text")),
        **dict.fromkeys(IDENTIFYING, ("identity",)),
        **dict.fromkeys(FREE, ("text",)),
    }
    if path or column not in kinds:
        raise InputError(f"{place!r} is no place in an event that a fact may read", hint=f"there are {_known(kinds)}")
    if kind not in kinds[column]:
        raise InputError(f"{place!r} is no {kind} but {' or '.join(kinds[column])}")


def _known(columns: Iterable[str]) -> str:
    return ", ".join([*sorted(columns), *(f"{one}.…" for one in sorted(OBJECTS))])


_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,126}")


@dataclass(frozen=True)
class Fact:
    """One row for each event of these types."""

    name: str
    types: tuple[str, ...]
    fields: Mapping[str, Field] = field(hash=False)

    def __post_init__(self) -> None:
        check_name(self.name, "a fact")
        for name in self.fields:
            check_name(name, f"a field of {self.name}")
        if not self.types or not all(_TYPE.fullmatch(one) for one in self.types):
            raise InputError(f"fact {self.name}: it needs the types of its events by name")
        if not self.fields:
            raise InputError(f"fact {self.name}: it needs fields")


@dataclass(frozen=True)
class Executions(Fact):
    """One row for each execution that began and ended; its fields are given."""

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


_STARTS: Final = ("execution.requested", "playbook.initialized", "workflow.initialized")
_ENDS: Final = tuple(sorted(ENDING))

EXECUTIONS: Final = Executions(
    "executions",
    (*_STARTS, *_ENDS),
    {
        "ended_at": time("event_time"),
        "outcome": category("event_type", values=("completed", "failed", "cancelled")),
        "milliseconds": number("meta.milliseconds"),
        "playbook": identity("catalog_id"),
    },
    starts=_STARTS,
    ends=_ENDS,
)
"""Executions from the moment they were asked for to their end. The places of these fields are worked out, not read."""

_FAILED: Final = (*types_of_attempts("failed"), *types_of_attempts("attempt_failed", at="task"))

FAILURES: Final = Fact(
    "failures",
    _FAILED,
    {
        "at": time("event_time"),
        "what": category("event_type", values=_FAILED),
        "problem": category("result.error.kind", "meta.error_kind", values=sorted(get_args(ProblemKind))),
        "step": identity("node_name"),
        "message": text("error"),
    },
)
"""Work that failed for good, and attempts at tasks that did."""

WORK: Final = Fact(
    "work",
    ("partition.committed", "frame.committed"),
    {
        "at": time("event_time"),
        "what": category("event_type", values=("partition.committed", "frame.committed")),
        "rows": number("meta.rows", "meta.row_count"),
        "bytes": number("meta.bytes", "payload_ref.bytes"),
        "step": identity("node_name"),
    },
)
"""Rows that were worked off and the bytes of what came of them, frame by frame and partition by partition."""
