"""The metrics of relays: what the relay of this process did, and how far each shard is behind, as the database tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from noetl.model.stream import SHARD_COUNT

RELAYED: Final = """
SELECT s.shard, s.position - coalesce(max(c.position), 0) AS waiting
FROM noetl.shard AS s LEFT JOIN noetl.relay_cursor AS c ON c.shard = s.shard AND c.stream_name = $1
GROUP BY s.shard, s.position
"""
"""What is asked of the database, for one stream."""
ACK_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RelayMetrics:
    """The series of relays, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Gauge(
            "relay_lag_events", "Committed events that are not in the stream yet.", ["shard"], registry=registry
        )
        self._published = Counter("relay_published", "Events published to the stream.", registry=registry)
        self._rebuilds = Counter(
            "relay_rebuilds", "Shards published from their beginning again, as the stream was made anew.",
            registry=registry,
        )  # fmt: skip
        self._decided = Counter(
            "relay_decided_published", "Decided events published for the materializer, repetitions included.",
            registry=registry,
        )  # fmt: skip
        self._acknowledged = Histogram(
            "relay_publish_ack_seconds", "Seconds until the stream acknowledged a batch of events.", buckets=ACK_BUCKETS,
            registry=registry,
        )  # fmt: skip
        for shard in range(SHARD_COUNT):
            self._lag.labels(str(shard))

    def acknowledged(self, seconds: float) -> None:
        """Take note of how long a batch waited for the stream."""
        self._acknowledged.observe(seconds)

    def decided(self, published: int) -> None:
        """Count decided events that were published for the materializer."""
        self._decided.inc(published)

    def relayed(self, published: int, lags: Mapping[int, int]) -> None:
        """Count published events, and show how many of each held shard wait."""
        self._published.inc(published)
        for shard, waiting in lags.items():
            self._lag.labels(str(shard)).set(waiting)

    def rebuilt(self, shards: int) -> None:
        """Count shards that are published from their beginning again."""
        self._rebuilds.inc(shards)

    def show_waiting(self, rows: Iterable[Any]) -> None:
        """Show what waits, as the database answered."""
        for row in rows:
            self._lag.labels(str(row["shard"])).set(row["waiting"])
