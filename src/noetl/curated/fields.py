"""Fields of facts: where in an event a value stands and of what kind it is. What may identify somebody stays marked so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from noetl.errors import InputError

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
