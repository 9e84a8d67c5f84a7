"""Metrics of projections: how far each shard is behind goes in as rows of a query, gauges come out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from noetl.ledger.database import Database
from noetl.model.shard import SHARD_COUNT

_LAGS = """
SELECT s.shard, s.position - c.position AS events, coalesce(extract(epoch FROM clock_timestamp() - (
           SELECT e.ingest_time FROM noetl.event AS e
           WHERE s.position > c.position AND e.shard = s.shard AND e.position = c.position + 1)), 0)::float8 AS seconds
FROM noetl.projection_checkpoint AS c JOIN noetl.shard AS s USING (shard) ORDER BY s.shard
"""


class ProjectionMetrics:
    """What is known of projections, whoever writes them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Gauge(
            "projection_lag_events", "Events of a shard that are not projected yet.", ["shard"], registry=registry
        )
        self._seconds = Gauge(
            "projection_lag_seconds", "How long the oldest event of a shard that is not projected has waited.", ["shard"],
            registry=registry,
        )  # fmt: skip
        for shard in range(SHARD_COUNT):
            self._events.labels(str(shard))
            self._seconds.labels(str(shard))

    def show(self, lags: Iterable[Any]) -> None:
        """Show what `projection_lags` found."""
        for row in lags:
            self._events.labels(str(row["shard"])).set(max(row["events"], 0))
            self._seconds.labels(str(row["shard"])).set(max(row["seconds"], 0.0))


async def projection_lags(database: Database) -> list[Any]:
    """Return how far each shard's projections are behind, in events and in seconds."""
    async with database.transaction(None, "projector") as connection:
        return list(await connection.fetch(_LAGS))
