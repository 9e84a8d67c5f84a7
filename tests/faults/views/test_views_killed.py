"""Whatever is killed at whatever stage of a batch, the view equals its recomputation and counts every event once."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.contracts.event_lake.lake_testbed import AnsweringDrivers
from tests.contracts.views.view_testbed import CITIES, SCOPE, ViewTestbed, standing

from noetl import faults
from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.spark.drivers.pool import Drivers
from noetl.spark.session.options import SparkOptions
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(600)]

IN_THE_DRIVER = ("view.before_rows", "view.after_rows", "view.after_barrier")
IN_THE_WORKER = ("view.before_apply", "view.before_commit", "view.after_commit")
AT_A_SWAP = ("view.before_swap", "view.after_swap")


async def test_a_driver_killed_at_every_stage_of_a_batch_leaves_no_trace(
    database: Database, spark_options: SparkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-94, INV-95."""
    truth = Counter[str]()
    for point in IN_THE_DRIVER:
        monkeypatch.setenv("NOETL_FAULT", f"{point}=kill")
        drivers = Drivers(spark_options)
        async with standing(database, drivers, spark_options) as testbed:
            await testbed.deploy(CITIES)
            await noted(testbed, truth)
            with pytest.raises(NoetlError, match="driver"):
                await testbed.caught_up("cities", tries=1)
        await drivers.close()
    monkeypatch.delenv("NOETL_FAULT")
    drivers = Drivers(spark_options)
    try:
        async with standing(database, drivers, spark_options) as testbed:
            await equal(testbed, truth)
            for point in IN_THE_WORKER:
                await stopped(testbed, truth, point)
    finally:
        await drivers.close()


async def test_a_swap_that_is_broken_off_is_finished_by_the_next_run(
    database: Database, spark_drivers: SharedDrivers
) -> None:
    """INV-95, INV-97."""
    truth = Counter[str]()
    async with standing(database, AnsweringDrivers(spark_drivers), spark_drivers.options) as testbed:
        await testbed.deploy(CITIES)
        await noted(testbed, truth)
        await equal(testbed, truth)
        for number, point in enumerate(AT_A_SWAP):
            await testbed.deploy(CITIES.replace("amount > 0", f"amount > {number} - 2"))
            await stopped(testbed, truth, point)
        versions = await testbed.versions.of(SCOPE, "cities")
        assert [one.status for one in versions] == ["superseded", "superseded", "current"]
        async with database.transaction(SCOPE) as connection:
            kept = await connection.fetch("SELECT DISTINCT version_id::text FROM noetl.view_row")
        assert [row[0] for row in kept] == [versions[-1].version_id]


async def stopped(testbed: ViewTestbed, truth: Counter[str], point: str) -> None:
    """Have a run fail at a point of this process, and the next one go on."""
    await noted(testbed, truth)
    faults.arm(f"{point}=raise")
    try:
        with pytest.raises(NoetlError, match=point.replace(".", r"\.")):
            await testbed.caught_up("cities")
    finally:
        faults.arm("")
    await equal(testbed, truth)


async def noted(testbed: ViewTestbed, truth: Counter[str]) -> None:
    for city in ("rome", "bonn", "rome"):
        await testbed.note(city, 1)
        truth[city] += 1


async def equal(testbed: ViewTestbed, truth: Counter[str]) -> None:
    await testbed.caught_up("cities")
    assert {row["city"]: row["notes"] for row in await testbed.rows("cities")} == dict(truth)
    found = await testbed.verified("cities")
    assert found.differences == 0, found
