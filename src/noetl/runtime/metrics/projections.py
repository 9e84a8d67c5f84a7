"""Metrics of projections: how far each shard of each store is behind, and how many events this process projected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

import asyncpg
from prometheus_client import CollectorRegistry, Counter, Gauge

from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.projections.stores.by_type import StoredByType, StoreLine
from noetl.model.stream import SHARD_COUNT
from noetl.runtime.wiring import Runtime

_LAGS = """
SELECT s.shard, s.position - c.position AS events, coalesce(extract(epoch FROM clock_timestamp() - (
           SELECT e.ingest_time FROM noetl.event AS e
           WHERE s.position > c.position AND e.shard = s.shard AND e.position = c.position + 1)), 0)::float8 AS seconds,
       (SELECT count(*) FROM noetl.broken_stream AS b WHERE b.shard = s.shard) AS broken
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
        self._broken = Gauge(
            "projection_broken_streams", "Streams whose rows stand still while their shard goes on.", registry=registry
        )
        for shard in range(SHARD_COUNT):
            self._events.labels(str(shard))
            self._seconds.labels(str(shard))

    def show(self, lags: Iterable[Any]) -> None:
        """Show what `projection_lags` found."""
        lags = list(lags)
        self._broken.set(sum(row["broken"] for row in lags))
        for row in lags:
            self._events.labels(str(row["shard"])).set(max(row["events"], 0))
            self._seconds.labels(str(row["shard"])).set(max(row["seconds"], 0.0))


async def projection_lags(database: Database) -> list[Any]:
    """Return how far each shard's projections are behind, in events and in seconds."""
    async with database.transaction(None, "projector") as connection:
        return list(await connection.fetch(_LAGS))


class ProjectedCounts:
    """How many events a process of its own has projected, told by the store that it writes to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter("projector_projected", "Events that this process projected.", registry=registry)
        self._batches = Counter(
            "projector_batches", "Batches of events that this process projected, each in one transaction.",
            registry=registry,
        )  # fmt: skip

    def counted(self, runtime: Runtime) -> Runtime:
        """Return the same runtime, whose projections are counted as they are saved in the default store."""
        first, *others = runtime.projections.lines
        counted = replace(first, store=cast("Any", _Counted(first.store, self)))
        return replace(runtime, projections=StoredByType([counted, *others]))

    def saved(self, events: int) -> None:
        """Count a batch whose checkpoint moved over so many positions, which are dense."""
        self._events.inc(events)
        self._batches.inc()


class _Counted:
    """A projection store that tells what it saved, and is the store itself in everything else."""

    def __init__(self, store: Any, counts: ProjectedCounts) -> None:
        self._store = store
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def held_by(self, *hold: Any) -> _Counted:
        return _Counted(self._store.held_by(*hold), self._counts)

    async def save_projections(self, shard: int, after: int, upto: int, *what: Any, **named: Any) -> bool:
        saved = bool(await self._store.save_projections(shard, after, upto, *what, **named))
        if saved:
            self._counts.saved(upto - after)
        return saved


ANSWER_SECONDS: Final = 2.0
"""How long a store is waited for; one that does not answer by then counts as away."""

_HEADS: Final = "SELECT position FROM noetl.shard ORDER BY shard"


class StoreMetrics:
    """What is known of the stores; without any beside the default one there are no series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Gauge(
            "projection_store_lag_events", "Events that a projection store has not projected yet, in all shards.",
            ["store"], registry=registry,
        )  # fmt: skip
        self._up = Gauge(
            "projection_store_up", "Whether a projection store answers; its lag is as it was if not.", ["store"],
            registry=registry,
        )  # fmt: skip

    async def read(self, ledger: Database, stores: StoredByType) -> None:
        """Ask every store beside the default one, all at once."""
        others = stores.lines[1:]
        if not others:
            return
        answers = await asyncio.gather(*map(_position, others))
        async with ledger.transaction(None, "projector") as connection:
            head = sum(row["position"] for row in await connection.fetch(_HEADS))
        for line, position in zip(others, answers, strict=True):
            self._up.labels(line.name).set(position is not None)
            if position is not None:
                self._events.labels(line.name).set(max(head - position, 0))


async def _position(line: StoreLine) -> int | None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return sum((await line.store.checkpoints()).positions)
    except (NoetlError, asyncpg.PostgresError, TimeoutError):
        return None
