"""How far behind the projections are: shard by shard, in events and in seconds."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from noetl.kernel.ledger.port import Ledger
from noetl.kernel.projections.stores.port import Failure, ProjectionStore


class ShardLag(msgspec.Struct, frozen=True):
    """One shard's progress."""

    shard: int
    head: int
    checkpoint: int
    lag_events: int
    lag_seconds: float
    """How long the oldest event that is not projected has been waiting; 0 when there is none."""
    rows: int
    failure: Failure | None


async def shard_lags(ledger: Ledger, store: ProjectionStore, now: datetime | None = None) -> list[ShardLag]:
    """Return the progress of every shard."""
    # Checkpoints first: read the other way round, a shard could seem to be ahead of the ledger.
    states = await store.shard_states()
    head = await ledger.head()
    lags = []
    for state in states:
        behind = head.positions[state.shard] - state.position
        waiting = 0.0
        if behind:
            next_position = state.position + 1
            async for event in ledger.read_shard(state.shard, next_position, to_position=next_position):
                waiting = max(((now or datetime.now(UTC)) - event.ingest_time).total_seconds(), 0.0)
        lags.append(
            ShardLag(
                shard=state.shard,
                head=head.positions[state.shard],
                checkpoint=state.position,
                lag_events=behind,
                lag_seconds=waiting,
                rows=state.rows,
                failure=state.failure,
            )
        )
    return lags
