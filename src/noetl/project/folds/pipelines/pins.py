"""The rows of what is kept whatever its age, and what was removed, as their events leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.model.event import Event, parse_time
from noetl.project.folds.fold import Row, moment
from noetl.project.folds.pipelines.tables import Tables, identity, key_of, part


def _policy_set(tables: Tables, event: Event) -> None:
    tables["retention_policy"][""] = {
        "policy": part(event, "policy", {}),
        "set_by": event.meta.get("by") or "",
        "set_at": moment(event.ingest_time),
    }


def _created(tables: Tables, event: Event) -> None:
    meta = event.meta
    row: Row = {
        "pin_id": identity(meta.get("pin_id")),
        "kind": meta.get("kind"),
        "dataset_uuid": identity(meta.get("dataset_uuid")),
        "execution_id": meta.get("execution_id"),
        "mark": meta.get("mark"),
        "note": meta.get("note") or "",
        "until": _time(meta.get("until")),
        "created_by": meta.get("by") or "",
        "created_at": moment(event.ingest_time),
        "released_by": None,
        "released_at": None,
    }
    tables["pin"].setdefault(key_of("pin", row), row)


def _released(tables: Tables, event: Event) -> None:
    row = tables["pin"].get(str(identity(event.meta.get("pin_id"))))
    if row is not None and row["released_at"] is None:
        row |= {"released_at": moment(event.ingest_time), "released_by": event.meta.get("by") or ""}


def _swept(tables: Tables, event: Event) -> None:
    meta, kind = event.meta, event.meta.get("kind")
    known = tables["sweep"].get(str(kind))
    before: str | None = None if known is None else known["until"]
    moments = [until for until in (before, _time(meta.get("until"))) if until is not None]
    tables.put(
        "sweep",
        {
            "kind": kind,
            "items": meta.get("items"),
            "bytes": meta.get("bytes") or 0,
            # Written in one width, so that the later one is also the greater text.
            "until": max(moments, default=None),
            "swept_at": moment(event.ingest_time),
        },
    )


def _trimmed(tables: Tables, event: Event) -> None:
    meta = event.meta
    for partition_key, version in part(event, "versions", []):
        row: Row = {
            "dataset_version": identity(meta.get("dataset_version")),
            "partition_key": partition_key,
            "version": version,
            "dataset_uuid": identity(meta.get("dataset_uuid")),
            "reason": meta.get("reason"),
            "trimmed_at": moment(event.ingest_time),
        }
        tables["trimmed_version"].setdefault(key_of("trimmed_version", row), row)


def _let_go(tables: Tables, event: Event) -> None:
    meta, at = event.meta, moment(event.ingest_time)
    row: Row = {
        "dataset_version": identity(meta.get("dataset_version")),
        "dataset_uuid": identity(meta.get("dataset_uuid")),
        "generation": identity(meta.get("generation")),
        "reason": meta.get("reason"),
        "served_until": _time(meta.get("served_until")),
        "retired_at": at,
        "purged_at": at if event.event_type == "generation.purged" else None,
    }
    known = tables["retired_generation"].setdefault(key_of("retired_generation", row), row)
    known |= {"reason": row["reason"], "purged_at": row["purged_at"]}


def _time(text: str | None) -> str | None:
    return None if text is None else moment(parse_time(text))


PINS_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "pin.policy_set": _policy_set,
    "pin.created": _created,
    "pin.released": _released,
    "pin.swept": _swept,
    "generation.retired": _let_go,
    "generation.trimmed": _trimmed,
    "generation.purged": _let_go,
}
