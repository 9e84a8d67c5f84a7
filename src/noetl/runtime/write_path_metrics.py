"""The metrics of the write path: what waits for the materializer, and how long the stream takes to acknowledge facts."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from noetl.ledger.database import Connection
from noetl.runtime.relay_metrics import ACK_BUCKETS

WAITING: Final = """
SELECT count(*) AS events, coalesce(extract(epoch FROM clock_timestamp() - min(ingest_time)), 0)::float8 AS seconds
FROM noetl.pending_event
"""
_RESULTS: Final = ("equal", "missing", "different", "redelivered")
_COMPARED: Final = f"""
SELECT {", ".join(f"coalesce(sum({result}), 0)::bigint AS {result}" for result in _RESULTS)} FROM noetl.divergence
"""  # noqa: S608 - the words are our own


class MaterializerLag:
    """What waits for materializers, whoever they are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "materializer_lag_events", "Decided events that are not in the ledger yet.", registry=registry
        )
        self._age = Gauge(
            "materializer_lag_seconds", "Age of the oldest decided event that is not in the ledger.", registry=registry
        )

    def show_waiting(self, row: Any) -> None:
        """Show what waits, as the database answered."""
        self._waiting.set(row["events"])
        self._age.set(max(row["seconds"], 0.0))


class WritePathMetrics(MaterializerLag):
    """The series of the write path in a server, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._acknowledged = Histogram(
            "publish_ack_seconds", "Seconds until the stream acknowledged a batch of facts.", buckets=ACK_BUCKETS,
            registry=registry,
        )  # fmt: skip

    def acknowledged(self, seconds: float) -> None:
        """Take note of how long a batch of facts waited for the stream."""
        self._acknowledged.observe(seconds)


class MaterializerMetrics(MaterializerLag):
    """The series of a materializer that is a process of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._written = Counter(
            "materializer_written", "Events that this process wrote into the ledger.", registry=registry
        )

    def written(self, events: int) -> None:
        """Count events that came to the ledger."""
        self._written.inc(events)

    async def read(self, connection: Connection) -> None:
        """Ask how much waits, of all tenants."""
        self.show_waiting(await read_waiting(connection))


class ShadowMetrics:
    """What materializers in the shadow of the ledger found, in all."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._compared = Gauge(
            "shadow_compared_events", "Events that the shadow compared with the ledger, by what came of it.",
            ["result"], registry=registry,
        )  # fmt: skip
        for result in _RESULTS:
            self._compared.labels(result)

    async def read(self, connection: Connection) -> None:
        """Ask what was found so far."""
        row: Any = await connection.fetchrow(_COMPARED)
        for result in _RESULTS:
            self._compared.labels(result).set(row[result])


async def read_waiting(connection: Connection) -> Any:
    """Ask how much waits, of all tenants."""
    return await connection.fetchrow(WAITING)
