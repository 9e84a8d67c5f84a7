"""The metrics of alerts: how many are open, and what became of the messages about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from noetl.model.catalogue.alerts import SEVERITIES
from noetl.model.event import Draft

OPEN: Final = "SELECT severity, count(*) AS alerts FROM noetl.alert WHERE status = 'open' GROUP BY severity"
"""What is asked of the database."""
_RESULTS: Final = {
    "delivery.delivered": "delivered",
    "delivery.attempt_failed": "attempt_failed",
    "delivery.failed": "failed",
}
_KINDS: Final = ("webhook", "slack", "mail", "unknown")


class AlertMetrics:
    """The series of alerts, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("noetl_alerts_open", "Alerts that are open, by severity.", ["severity"], registry=registry)
        self._deliveries = Counter(
            "noetl_alert_deliveries", "Messages about alerts, by kind of channel and what became of them.",
            ["channel_kind", "result"], registry=registry,
        )  # fmt: skip
        for kind in _KINDS:
            for result in _RESULTS.values():
                self._deliveries.labels(kind, result)
        self.show_open(())

    def observe(self, draft: Draft) -> None:
        """Count what an event says about a message."""
        result = _RESULTS.get(draft.event_type)
        if result is not None:
            kind = str(draft.meta.get("channel_kind"))
            self._deliveries.labels(kind if kind in _KINDS else "unknown", result).inc()

    def show_open(self, rows: Iterable[Any]) -> None:
        """Show how many alerts are open, as the database answered."""
        found = {row["severity"]: row["alerts"] for row in rows}
        for severity in SEVERITIES:
            self._open.labels(severity).set(found.get(severity, 0))
