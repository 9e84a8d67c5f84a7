"""The schema registry as files: the catalogue goes in, texts by path come out, and drift from a stored copy is named.

A published schema never changes: what an event of that version means must stay readable for as long as the event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from noetl.model.canonical import sha256_hex
from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event_type import EventType, NoFields

INDEX = "index.json"


class Drift(msgspec.Struct, frozen=True):
    """One way in which a directory of schemas differs from the catalogue."""

    path: str
    kind: Literal["changed", "missing", "edited", "unlisted"]
    problem: str


def schema_path(kind: EventType) -> str:
    """Return where a type's schema stands in the registry."""
    return f"{kind.name}/{kind.version}.json"


def schema_files(types: Sequence[EventType] = EVENT_TYPES) -> dict[str, str]:
    """Return the JSON Schema of every type as text, by path."""
    return {schema_path(kind): _text(kind.json_schema()) for kind in types}


def registry_files(stored: Mapping[str, str], types: Sequence[EventType] = EVENT_TYPES) -> dict[str, str]:
    """Return all files of the registry: the schemas of today, the stored ones of earlier versions, and their index."""
    schemas = {path: text for path, text in stored.items() if path != INDEX} | schema_files(types)
    return {**dict(sorted(schemas.items())), INDEX: _index(schemas)}


def check(stored: Mapping[str, str], types: Sequence[EventType] = EVENT_TYPES) -> list[Drift]:
    """Compare a stored registry with the catalogue and with its own index; empty when all agree."""
    found: list[Drift] = []
    listed = _listed(stored)
    for path, text in schema_files(types).items():
        if path not in stored:
            found.append(Drift(path, "missing", "is not exported"))
        elif stored[path] != text:
            found.append(Drift(path, "changed", "has changed under the same version; raise the type's version"))
    for path, text in stored.items():
        if path != INDEX and path not in listed:
            found.append(Drift(path, "unlisted", "is not in index.json"))
        elif path != INDEX and listed[path] != sha256_hex(text.encode()):
            found.append(Drift(path, "edited", "does not match its digest in index.json"))
    found += [Drift(path, "missing", "is in index.json but not there") for path in listed if path not in stored]
    return sorted(found, key=lambda drift: (drift.path, drift.kind))


def render_events(types: Sequence[EventType] = EVENT_TYPES) -> str:
    """Return the reference page of all event types as Markdown."""
    lines = [
        "# Events",
        "",
        "Every fact in the ledger has one of these types; types under `business.` are your own. This page is made by",
        "`noetl schema events --markdown` from the catalogue in `noetl.model.catalogue`; do not edit it.",
        "",
        _line(_COLUMNS),
        "|---" * len(_COLUMNS) + "|",
        *(_line(_cells(kind)) for kind in types),
    ]
    return "\n".join([*lines, "", *_LEGEND, ""])


def _cells(kind: EventType) -> tuple[str, ...]:
    return (
        f"`{kind.name}`",
        str(kind.version),
        kind.sentence,
        kind.aggregate,
        _names(required_fields(kind)),
        _names(kind.opens),
        _names(kind.changes),
        _names(kind.ends),
        _names(kind.projections),
        "observed" if kind.observed else "decided",
        _yes(kind.ends_execution),
        f"`{kind.once_per}`" if kind.once_per else "",
        _yes(kind.retried),
    )


def required_fields(kind: EventType) -> list[str]:
    """Return what a type must carry besides what every event carries, fields within JSON parts as `part.field`."""
    found = list(kind.needs)
    for part in ("meta", "context", "result"):
        fields: type[msgspec.Struct] = getattr(kind, part)
        if fields is not NoFields:
            found += [f"{part}.{field.name}" for field in msgspec.structs.fields(fields) if field.required]
    return found


_COLUMNS = (
    "type",
    "version",
    "what it says",
    "aggregate",
    "must carry",
    "rows opened",
    "rows changed",
    "rows ended",
    "projections",
    "made",
    "ends",
    "once per",
    "retried",
)
_LEGEND = (
    "*rows opened*, *changed*, *ended*: the tables of which the event adds rows, changes rows that stand, and removes rows,",
    "in the transaction it is written in; a row that is kept after its work has ended is changed. *projections*: those whose",
    "rows follow from it, a moment later; `execution` counts every event of an execution besides. *made*: a *decided* event",
    "is arbitrated by a fence, a version or a row; an *observed* one reports what happened elsewhere and decides nothing.",
    "*ends*: the event ends its execution. *once per*: the fact may stand once per that id in an execution; a second",
    "one is refused. *retried*: it is reported from outside and sent again on doubt, so `idempotency_key` is mandatory.",
)


def _yes(value: bool) -> str:  # noqa: FBT001 - the value is what is shown
    return "yes" if value else ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _index(schemas: Mapping[str, str]) -> str:
    return _text({"schemas": {path: {"sha256": sha256_hex(text.encode())} for path, text in schemas.items()}})


def _listed(stored: Mapping[str, str]) -> dict[str, str]:
    if INDEX not in stored:
        return {}
    try:
        index = msgspec.json.decode(stored[INDEX], type=dict[str, dict[str, dict[str, str]]])
    except msgspec.DecodeError:
        return {}
    return {path: entry.get("sha256", "") for path, entry in index.get("schemas", {}).items()}


def _text(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
