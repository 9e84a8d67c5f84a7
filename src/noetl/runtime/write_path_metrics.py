"""The metrics of the write path: what waits for the materializer, and how long the stream takes to acknowledge facts."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from noetl.ledger.database import Connection

_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

WAITING: Final = """
SELECT count(*) AS events, coalesce(extract(epoch FROM clock_timestamp() - min(ingest_time)), 0)::float8 AS seconds
FROM noetl.pending_event
"""


class WritePathMetrics:
    """The series of the write path, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "materializer_lag_events", "Decided events that are not in the ledger yet.", registry=registry
        )
        self._age = Gauge(
            "materializer_lag_seconds", "Age of the oldest decided event that is not in the ledger.", registry=registry
        )
        self._acknowledged = Histogram(
            "publish_ack_seconds", "Seconds until the stream acknowledged a batch of facts.", buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip

    def acknowledged(self, seconds: float) -> None:
        """Take note of how long a batch of facts waited for the stream."""
        self._acknowledged.observe(seconds)

    def show_waiting(self, row: Any) -> None:
        """Show what waits, as the database answered."""
        self._waiting.set(row["events"])
        self._age.set(max(row["seconds"], 0.0))


async def read_waiting(connection: Connection) -> Any:
    """Ask how much waits, of all tenants."""
    return await connection.fetchrow(WAITING)
