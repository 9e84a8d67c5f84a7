"""Drivers as clients of a real Spark Connect server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from tests.unit.spark.drivers.conftest import OPERATORS, WorkMaker
from tests.unit.spark.drivers.meeting import bell

from noetl.spark.session.options import SparkOptions
from noetl.testing.servers.spark import SharedDrivers, bundle_of
from noetl.testing.servers.spark_cluster import running_connect

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]

BUNDLE = bundle_of(scripted_operators=OPERATORS, rules="VALUE = 42")
SLOW = """
def slow(batches):
    import time
    {ring}
    time.sleep(600)
    yield from batches
session.range(0, 1, 1, 1).mapInArrow(slow, "id long").toArrow()
"""


@pytest.fixture(scope="module")
def drivers(scripted_options: SparkOptions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDrivers]:
    with running_connect(tmp_path_factory.mktemp("connect"), scripted_options) as master:
        shared = SharedDrivers(msgspec.structs.replace(scripted_options, master=master), live=3)
        yield shared
        shared.close()


async def test_a_job_runs_in_a_session_of_its_own_with_the_bundle(drivers: SharedDrivers, work: WorkMaker) -> None:
    code = """
        def valued(batches):
            import pyarrow as pa, rules
            for batch in batches:
                yield pa.RecordBatch.from_pydict({"v": [rules.VALUE] * batch.num_rows})
        print("counting")
        metrics["views"] = [view.name for view in session.catalog.listTables()]
        session.range(3).createOrReplaceTempView("mine")
        metrics["zone"] = session.conf.get("spark.sql.session.timeZone")
        metrics["values"] = session.sql("SELECT * FROM mine").mapInArrow(valued, "v long").toArrow().to_pydict()["v"]
        metrics["below"] = session.newSession().conf.get("spark.sql.session.timeZone")
    """
    async with drivers.for_("code", BUNDLE, "acme") as driver:
        for _ in range(2):
            (result,) = [result async for result in driver.run([work(code)])]
            assert result.status == "ok", (result.error, result.log)
            assert result.metrics == {"views": [], "zone": "UTC", "values": [42, 42, 42], "below": "UTC"}
            assert result.log == "counting\n"


async def test_an_interrupt_stops_the_job_on_the_server(drivers: SharedDrivers, work: WorkMaker) -> None:
    async with bell() as started, drivers.for_("code", BUNDLE, "acme") as driver:
        one = work(SLOW.format(ring=started.ring))
        pending = asyncio.ensure_future(anext(driver.run([one])))
        await started.rung.wait()
        await driver.interrupt(one.tag)
        async with asyncio.timeout(60):
            assert (await pending).status == "interrupted"


async def test_another_driver_stops_what_a_lost_one_left_on_the_server(drivers: SharedDrivers, work: WorkMaker) -> None:
    async with (
        drivers.for_("code", BUNDLE, "acme") as other,
        drivers.for_("lost", BUNDLE, "acme") as driver,
        bell() as started,
    ):
        one = work(SLOW.format(ring=started.ring))
        pending = asyncio.ensure_future(anext(driver.run([one])))
        await started.rung.wait()
        # Not the driver that has it is asked, but one that only knows its name.
        await other.interrupt_left(driver.application_id, one.tag)
        async with asyncio.timeout(60):
            assert (await pending).status == "error"
