"""A view equals its recomputation, on local Spark and on a cluster: appended to, late, upcast, swapped, beside a neighbour."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers
from tests.contracts.views.view_testbed import CITIES, NEIGHBOUR, SCOPE, ViewTestbed, noted, standing

from noetl.engine.dispatch.polling import Backoff
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.services.views.supervisor import Keeping
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.service, pytest.mark.timeout(400)]

HOURS = """
kind: View
name: hours
source: {events: {types: business.noted, since: "2026-01-01T00:00:00Z"}}
sql: |
  SELECT window.start AS hour, count(*) AS notes, max_by(get_json_object(meta, '$.city'), event_time) AS city
  FROM events GROUP BY window(event_time, '1 hour')
keys: hour
event_time: {watermark: 30m}
barrier_interval_ms: 1
checkpoint: {shared: true}
"""
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
async def testbed(database: Database, any_drivers: SharedDrivers) -> AsyncIterator[ViewTestbed]:
    async with standing(database, AnsweringDrivers(any_drivers), any_drivers.options) as made:
        yield made


@pytest.mark.slow
async def test_a_view_equals_its_recomputation(testbed: ViewTestbed, ledger: PostgresLedger, owner_url: str) -> None:
    """INV-94, INV-98: under slow commits, a schema that changes midway, a lost database, beside a neighbour."""
    version = await testbed.deploy(CITIES + "checkpoint: {shared: true}\n")
    await testbed.note("ghent", 7, NEIGHBOUR)
    keeping = Keeping(
        testbed.around, worker="tests", lease_seconds=60.0, every_seconds=0.1, together=1, scope=SCOPE,
        backoff=Backoff(0.01, 0.02),
    )  # fmt: skip
    keeping.start()
    truth = Counter[str]()
    slow = noted("oslo", 1)
    async with ledger.decision(SCOPE) as decision:
        # Held on purpose, also while a Spark that starts keeps this process from its turn.
        await decision.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await decision.append(slow.appends[0].stream, list(slow.appends[0].drafts))
        truth["oslo"] += 1
        # The shard of the open append waits; all others go on, and so does the view.
        others = [noted(city, 1) for city in ("rome", "bonn") for _ in range(20)]
        for one in others:
            if one.appends[0].stream.shard != slow.appends[0].stream.shard:
                await testbed.ledger.transact(one)
                truth[one.appends[0].drafts[0].meta["city"]] += 1
        await testbed.reached(version, held=decision.connection)
    await cut_off(owner_url)
    for number in range(10):
        # The old schema calls the amount `sum` and knows one city only; the upcaster of the tests tells which.
        await testbed.note_as(1 + number % 2, 3)
        truth["rome"] += 1
    await testbed.reached(version)
    await keeping.stop()
    found = await testbed.verified("cities")
    assert found.differences == 0, found
    assert {row["city"]: row["notes"] for row in await testbed.rows("cities")} == dict(truth)
    served = await testbed.versions.serving(SCOPE, "cities")
    assert (served.status, served.lease_token) == ("current", None)

    async with testbed.database.transaction(SCOPE) as connection:
        damage = """UPDATE noetl.view_row SET value = value || '{"notes": 99}' WHERE value ->> 'city' = 'rome'"""
        await connection.execute(damage)
    damaged = await testbed.verified("cities")
    assert damaged.differences == 1
    assert damaged.first[0].found["notes"] == 99
    assert damaged.first[0].expected["notes"] == truth["rome"]


async def cut_off(owner_url: str) -> None:
    """Cut all connections to the database off, as a restart of PostgreSQL does."""
    admin = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> $1"
    await admin.execute(cut.replace("$1", "pg_backend_pid()"))
    await admin.close()


@pytest.mark.slow
async def test_what_is_late_is_left_out_alike(database: Database, spark_drivers: SharedDrivers) -> None:
    """INV-96."""
    async with standing(database, AnsweringDrivers(spark_drivers), spark_drivers.options) as testbed:
        await testbed.deploy(HOURS)
        for minutes in (0, 10, 200):
            await testbed.note("rome", 1, event_time=NOON + timedelta(minutes=minutes))
        first = await testbed.caught_up("hours")
        assert (first.watermark, first.late_total) == (None, 0)
        for minutes, city in ((190, "in time"), (20, "late"), (30, "late"), (205, "last")):
            await testbed.note(city, 1, event_time=NOON + timedelta(minutes=minutes))
        second = await testbed.caught_up("hours")
        assert second.watermark == NOON + timedelta(minutes=170)
        assert (second.late, second.late_total) == (2, 2)
        await testbed.note("rome", 1, event_time=NOON + timedelta(minutes=210))
        assert (await testbed.caught_up("hours")).late_total == 2
        assert await testbed.rows("hours") == [
            {"hour": "2026-11-01T12:00:00.000000Z", "notes": 2, "city": "rome"},
            {"hour": "2026-11-01T15:00:00.000000Z", "notes": 4, "city": "rome"},
        ]
        found = await testbed.verified("hours")
        assert (found.differences, found.late) == (0, 2), found
