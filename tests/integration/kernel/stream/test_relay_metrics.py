"""The figures of relays: there from the start, counted by the relay, and shown as the database tells."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.stream import SHARD_COUNT
from noetl.runtime.metrics.relay import RELAYED, RelayMetrics
from noetl.testing.samples.projected_ledger import HOME, a_run, record


def lags(registry: CollectorRegistry) -> list[float | None]:
    return [registry.get_sample_value("relay_lag_events", {"shard": str(shard)}) for shard in range(SHARD_COUNT)]


def test_every_series_is_there_from_the_start_and_counts() -> None:
    registry = CollectorRegistry()
    metrics = RelayMetrics(registry)
    assert lags(registry) == [0.0] * SHARD_COUNT
    metrics.relayed(7, {3: 5})
    metrics.relayed(2, {3: 0, 4: 1})
    metrics.rebuilt(16)
    assert registry.get_sample_value("relay_published_total") == 9
    assert registry.get_sample_value("relay_rebuilds_total") == 16
    assert (lags(registry)[3], lags(registry)[4]) == (0.0, 1.0)


async def test_what_waits_is_read_from_the_database(database: Database, ledger: PostgresLedger) -> None:
    registry = CollectorRegistry()
    await record(ledger, a_run(HOME))
    async with database.transaction(None, "relay") as connection:
        await connection.execute("INSERT INTO noetl.relay_cursor SELECT 'noetl_events', shard, 1 FROM noetl.shard")
        await connection.execute("INSERT INTO noetl.relay_cursor SELECT 'other_events', shard, 9 FROM noetl.shard")
    async with database.transaction(None) as connection:
        RelayMetrics(registry).show_waiting(await connection.fetch(RELAYED, "noetl_events"))
    assert lags(registry) == [last - 1 for last in (await ledger.head()).positions]
