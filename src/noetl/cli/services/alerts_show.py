"""How alerts, rules and messages are shown: rows go in, tables and facts come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.cli.terminal.tables import rendered
from noetl.services.alerts.applied_rules import Applied
from noetl.services.alerts.deliveries import DeliveryRow
from noetl.services.alerts.findings import AlertRow

_IDS = ("about_execution_id", "execution_id", "raised_event_id", "created_event_id")


def facts_of(row: AlertRow | DeliveryRow) -> dict[str, Any]:
    """Return a row as JSON has it: ids as text, no lease."""
    facts = msgspec.to_builtins(row)
    for name in _IDS:
        if facts.get(name) is not None:
            facts[name] = str(facts[name])
    facts.pop("lease_token", None)
    return facts  # type: ignore[no-any-return]


def rules_facts(applied: Applied) -> dict[str, Any]:
    """Return a file of alerts as JSON has it."""
    return {
        "name": applied.document.name,
        "applied_at": applied.applied_at.isoformat(),
        "digest": applied.digest,
        "rules": applied.document.rules,
        "channels": applied.document.channels,
    }


def alerts_table(rows: Sequence[AlertRow]) -> str:
    """Return alerts as a table."""
    return rendered(
        ("alert", "status", "severity", "rule", "raised", "times", "title"),
        [
            (
                row.alert_id[:8], row.status, row.severity, row.rule, f"{row.last_seen:%Y-%m-%d %H:%M:%S}",
                str(row.occurrences), row.title,
            )
            for row in rows
        ],
    )  # fmt: skip


def alert_text(row: AlertRow, deliveries: Sequence[DeliveryRow]) -> str:
    """Return all that stands about an alert."""
    told = [
        ("alert", row.alert_id),
        ("key", row.alert_key),
        ("status", row.status if row.resolved_at is None else f"resolved {row.resolved_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("severity", row.severity),
        ("title", row.title),
        ("message", row.message),
        ("raised", f"{row.occurrences} times" if row.occurrences > 1 else "once"),
        ("first", f"{row.first_seen:%Y-%m-%d %H:%M:%S} UTC"),
        ("last", f"{row.last_seen:%Y-%m-%d %H:%M:%S} UTC"),
        ("execution", "" if row.about_execution_id is None else str(row.about_execution_id)),
        ("resolution", row.resolution or ""),
    ]
    lines = "".join(f"{name + ':':<12}{value}\n" for name, value in told if value)
    return lines + (f"\n{deliveries_table(deliveries)}" if deliveries else "\nNobody is told about it.\n")


def deliveries_table(rows: Sequence[DeliveryRow]) -> str:
    """Return messages as a table."""
    return rendered(
        ("delivery", "status", "channel", "kind", "about", "tries", "made", "error"),
        [
            (
                row.delivery_id[:8], row.status, row.channel, row.channel_kind, row.occasion,
                f"{row.attempt}/{row.max_attempts}", f"{row.created_at:%Y-%m-%d %H:%M:%S}", row.error or "",
            )
            for row in rows
        ],
    )  # fmt: skip


def rules_text(applied: Sequence[Applied]) -> str:
    """Return rules and channels as two tables."""
    rules = [
        (
            one.document.name,
            rule["name"],
            rule["on"],
            rule.get("severity", "error"),
            ", ".join(rule.get("channels", ())),
        )
        for one in applied
        for rule in one.document.rules
    ]
    channels = [
        (one.document.name, name, declared["kind"], _place(declared), declared.get("credential", ""))
        for one in applied
        for name, declared in one.document.channels.items()
    ]
    shown = rendered(("file", "rule", "on", "severity", "channels"), rules)
    return f"{shown}\n{rendered(('file', 'channel', 'kind', 'where', 'credential'), channels)}"


def _place(declared: dict[str, Any]) -> str:
    return str(declared.get("url") or declared.get("host") or "as its credential says")
