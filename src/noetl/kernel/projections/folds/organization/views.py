"""The versions of streaming views, as the events of each view's stream leave them. What views hold is not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, later, part, payload
from noetl.model.catalogue.views import VIEW_STREAM
from noetl.model.event import Event


def _deployed(tables: Tables, event: Event) -> None:
    meta, at = event.meta, moment(event.ingest_time)
    own = identity(meta.get("version_id"))
    _end(tables, event, meta.get("view"), "superseded", lambda row: row["status"] == "building", but=own)
    row: Row = {
        "version_id": own,
        "view": meta.get("view"),
        "build": meta.get("build"),
        "digest": meta.get("digest"),
        "code_digest": meta.get("code_digest") or "",
        "document": part(event, "document", {}),
        "bundle_ref": payload(event),
        "sink": meta.get("sink"),
        "target_mark": meta.get("target"),
        "status": "building",
        "attempt": 0,
        "worker": None,
        "lease_token": None,
        "available_at": at,
        "error": None,
        "deployed_by": meta.get("by") or "",
        "deployed_at": at,
        "activated_at": None,
        "activated_mark": None,
        "ended_at": None,
    }
    tables["view_version"].setdefault(str(own), row)


def _claimed(tables: Tables, event: Event) -> None:
    meta = event.meta
    row = _row(tables, event)
    if row is not None:
        row |= {
            "attempt": meta.get("attempt"),
            "worker": meta.get("worker"),
            "lease_token": identity(meta.get("lease_token")),
        }


def _activated(tables: Tables, event: Event) -> None:
    own = identity(event.meta.get("version_id"))
    view = event.stream_id.removeprefix(VIEW_STREAM)
    _end(tables, event, view, "superseded", lambda row: row["status"] == "current", but=own)
    row = _row(tables, event)
    if row is not None:
        at = moment(event.ingest_time)
        row |= {"status": "current", "activated_at": at, "activated_mark": event.meta.get("mark")}


def _dropped(tables: Tables, event: Event) -> None:
    _end(tables, event, event.meta.get("view"), "dropped", lambda row: row["status"] != "dropped")


def _run_ended(tables: Tables, event: Event) -> None:
    row = _row(tables, event)
    open_ = row is not None and row["status"] in ("building", "current")
    if row is not None and open_ and row["attempt"] == event.meta.get("attempt"):
        delay = event.meta.get("delay_seconds") or 0
        row |= {"lease_token": None, "error": event.error, "available_at": later(event, delay)}


def _row(tables: Tables, event: Event) -> Row | None:
    return tables["view_version"].get(str(identity(event.meta.get("version_id"))))


def _end(
    tables: Tables, event: Event, view: Any, status: str, which: Callable[[Row], bool], but: str | None = None
) -> None:
    for row in tables["view_version"].values():
        if row["view"] == view and row["version_id"] != but and which(row):
            at = moment(event.ingest_time)
            row |= {"status": status, "ended_at": at, "available_at": None, "lease_token": None}


VIEWS_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "view.deployed": _deployed,
    "view.claimed": _claimed,
    "view.activated": _activated,
    "view.released": _run_ended,
    "view.attempt_failed": _run_ended,
    "view.dropped": _dropped,
}
