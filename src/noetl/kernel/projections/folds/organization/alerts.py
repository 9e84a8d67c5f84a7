"""The rows of rules, alerts and their deliveries, as the events of their streams leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.kernel.projections.folds.fold import Row, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, later, part
from noetl.model.event import Event

_FREE: Final[Row] = {"lease_token": None}
_ENDED: Final = {"delivery.delivered": "Delivered", "delivery.failed": "Dead"}


def _rules_applied(tables: Tables, event: Event) -> None:
    tables.put(
        "alert_rules",
        {
            "name": event.meta.get("name"),
            "rules": part(event, "rules", []),
            "channels": part(event, "channels", {}),
            "digest": event.meta.get("digest"),
            "applied_at": moment(event.ingest_time),
            "version": event.stream_version,
        },
    )


def _rules_removed(tables: Tables, event: Event) -> None:
    tables["alert_rules"].pop(str(event.meta.get("name")), None)


def _raised(tables: Tables, event: Event) -> None:
    meta, at = event.meta, moment(event.ingest_time)
    alert_id, about = str(identity(meta.get("alert_id"))), meta.get("about")
    known = tables["alert"].get(alert_id)
    named = {name: meta.get(name) for name in ("alert_key", "owner", "rule", "subject")}
    if known is not None:
        named = {name: known[name] for name in named}
    tables.put(
        "alert",
        {
            "alert_id": alert_id,
            **named,
            "part": meta.get("part") or "",
            "severity": meta.get("severity"),
            "title": part(event, "title"),
            "message": part(event, "message", ""),
            "status": "open",
            "occurrences": 1 if known is None else known["occurrences"] + 1,
            "evaluation": meta.get("evaluation"),
            "seen_event_id": str(meta.get("seen_event_id") or 0),
            "about_execution_id": None if about is None else str(about),
            "execution_id": str(event.execution_id),
            "raised_event_id": str(event.event_id),
            "first_seen": at if known is None else known["first_seen"],
            "last_seen": at,
            "resolved_at": None,
            "resolution": None,
            "version": event.stream_version,
        },
    )


def _resolved(tables: Tables, event: Event) -> None:
    row = tables["alert"].get(str(identity(event.meta.get("alert_id"))))
    if row is not None:
        row |= {
            "status": "resolved",
            "evaluation": event.meta.get("evaluation"),
            "seen_event_id": str(event.meta.get("seen_event_id") or 0),
            "resolved_at": moment(event.ingest_time),
            "resolution": event.meta.get("reason") or "",
            "version": event.stream_version,
        }


def _created(tables: Tables, event: Event) -> None:
    meta, delivery_id, at = event.meta, _delivery_id(event), moment(event.ingest_time)
    if delivery_id in tables["delivery"]:
        return
    expires = meta.get("expires_seconds")
    tables.put(
        "delivery",
        {
            "delivery_id": delivery_id,
            "alert_id": identity(meta.get("alert_id")),
            **{name: meta.get(name) for name in ("channel", "channel_kind", "severity", "occasion", "max_attempts")},
            "document": part(event, "document", {}),
            "status": "Pending",
            "attempt": 0,
            "worker": None,
            "available_at": at,
            "expires_at": None if expires is None else later(event, expires),
            "error": None,
            "execution_id": str(event.execution_id),
            "created_event_id": str(event.event_id),
            "created_at": at,
            "ended_at": None,
            "version": event.stream_version,
            **_FREE,
        },
    )


def _claimed(tables: Tables, event: Event) -> None:
    meta = event.meta
    _change(
        tables,
        event,
        status="Sending",
        attempt=meta.get("attempt"),
        worker=meta.get("worker"),
        lease_token=identity(meta.get("lease_token")),
    )


def _attempt_failed(tables: Tables, event: Event) -> None:
    delay = event.meta.get("delay_seconds") or 0
    _change(tables, event, status="Pending", error=event.error, available_at=later(event, delay), **_FREE)


def _rearmed(tables: Tables, event: Event) -> None:
    row = _change(
        tables,
        event,
        status="Pending",
        available_at=moment(event.ingest_time),
        expires_at=None,
        execution_id=str(event.execution_id),
        ended_at=None,
    )
    if row is not None:
        row["max_attempts"] += event.meta.get("extra_attempts", 0)


def _ended(tables: Tables, event: Event) -> None:
    _change(
        tables,
        event,
        status=_ENDED[event.event_type],
        available_at=None,
        error=event.error,
        ended_at=moment(event.ingest_time),
        **_FREE,
    )


def _change(tables: Tables, event: Event, **changes: Any) -> Row | None:
    row = tables["delivery"].get(_delivery_id(event))
    if row is not None:
        row |= {**changes, "version": event.stream_version}
    return row


def _delivery_id(event: Event) -> str:
    return str(identity(event.stream_id.removeprefix("delivery/")))


ALERTS_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "alert.rules_applied": _rules_applied,
    "alert.rules_removed": _rules_removed,
    "alert.raised": _raised,
    "alert.resolved": _resolved,
    "delivery.created": _created,
    "delivery.claimed": _claimed,
    "delivery.attempt_failed": _attempt_failed,
    "delivery.rearmed": _rearmed,
    **dict.fromkeys(_ENDED, _ended),
}
