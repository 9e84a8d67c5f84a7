"""Metrics of projection stores beside the default one: whether each answers, and by how many events it is behind."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg
from prometheus_client import CollectorRegistry, Gauge

from noetl.errors import NoetlError
from noetl.ledger.database import Database
from noetl.project.stores import StoredByType, StoreLine

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
