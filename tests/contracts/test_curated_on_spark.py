"""Curated views computed on Spark, local and on a cluster: the same rows as from PostgreSQL, over events of all tenants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contracts.many_tenants import OPERATORS, noon, populate, reads

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.services.curated.on_spark import OnSparkDrivers
from noetl.services.curated.reads import Reader
from noetl.services.curated.registry import DURATIONS, FAILURES_IN_COMMON, WORK_BY_SIZE
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.no_parity, pytest.mark.timeout(300)]


async def test_spark_gives_the_rows_that_postgresql_gives(
    database: Database, ledger: PostgresLedger, any_drivers: SharedDrivers
) -> None:
    """INV-102."""
    now, reader = noon(), Reader(OPERATORS, "tests")
    reach = {"database_url": database.url, "as_roles": True}
    spark = OnSparkDrivers(any_drivers, ledger, reach, 120)
    curated = reads(database, ledger, now, engines={"spark": spark})
    await populate(ledger, now)
    # These have every rule between them, and both kinds of facts.
    for view in (DURATIONS, FAILURES_IN_COMMON, WORK_BY_SIZE):
        here, there = await curated.read(reader, view.name), await curated.read(reader, view.name, "spark")
        assert here.rows, view.name
        assert (here.rows, here.withheld) == (there.rows, there.withheld), view.name
    told = [one.meta["engine"] for one in await everything(ledger) if one.event_type == "curated.read"]
    assert (told.count("postgres"), told.count("spark")) == (3, 3)
    away = OnSparkDrivers(any_drivers, ledger, {"database_url": "postgresql://x:hush@127.0.0.1:1/x"}, 120)
    broken = replace(DURATIONS, name="broken")
    with pytest.raises(Unavailable, match="curated view broken") as raised:
        await reads(database, ledger, now, broken, engines={"spark": away}).read(reader, "broken", "spark")
    assert "hush" not in str(raised.value)
