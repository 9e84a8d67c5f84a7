"""Drivers as clients of a real standalone cluster: one master, two worker processes, a packed environment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from tests.unit.spark.drivers.conftest import OPERATORS, WorkMaker
from tests.unit.spark.drivers.meeting import bell, meeting

from noetl.spark.pack import pack
from noetl.spark.session.options import SparkOptions
from noetl.testing.servers.spark import SharedDrivers, bundle_of

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]

LARGE = (
    "duckdb",
    "pandas",
    "alembic",
    "uvicorn",
    "starlette",
    "aiohttp",
    "psycopg",
    "psycopg-binary",
    "pyarrow",
    "numpy",
)
"""Left out of the pack to make it quick; executors on this machine find them in its own environment."""


@pytest.fixture(scope="module")
def drivers(
    scripted_options: SparkOptions, spark_master: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedDrivers]:
    packed = tmp_path_factory.mktemp("pack") / "environment.tar.gz"
    pack(packed, without=LARGE)
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    options = msgspec.structs.replace(
        scripted_options, master=spark_master, pack=str(packed), conf=scripted_options.conf | settings
    )
    shared = SharedDrivers(options)
    yield shared
    shared.close()


async def test_a_job_runs_on_both_workers_with_the_pack_and_the_bundle(drivers: SharedDrivers, work: WorkMaker) -> None:
    code = """
        def placed(batches):
            import os, socket
            import pyarrow as pa, msgspec, noetl, rules
            # Each executor has one core, so that only two of them can be here at once.
            with socket.create_connection(("127.0.0.1", {port})) as other:
                other.recv(1)
            for batch in batches:
                n = batch.num_rows
                yield pa.RecordBatch.from_pydict({{
                    "place": [os.getcwd()] * n, "noetl": [noetl.__file__] * n, "value": [rules.VALUE] * n,
                    "msgspec": [msgspec.__file__] * n,
                }})
        schema = "place string, noetl string, value long, msgspec string"
        rows = session.range(0, 2, 1, 2).mapInArrow(placed, schema).collect()
        parts = [part for row in rows for part in row.place.split("/")]
        metrics["workers"] = sorted(part for part in parts if part.startswith("worker-"))
        metrics["packed"] = all("/environment/" in row.noetl and "/environment/" in row.msgspec for row in rows)
        metrics["values"] = [row.value for row in rows]
    """
    bundle = bundle_of(scripted_operators=OPERATORS, rules="VALUE = 42")
    async with meeting(2) as port, drivers.for_("with-rules", bundle, "acme") as driver:
        (result,) = [result async for result in driver.run([work(code.format(port=port))])]
    assert result.status == "ok", result.log
    assert result.metrics == {"workers": ["worker-0", "worker-1"], "packed": True, "values": [42, 42]}


async def test_an_interrupt_reaches_the_executors(drivers: SharedDrivers, work: WorkMaker) -> None:
    code = """
        def slow(batches):
            import time
            {ring}
            time.sleep(600)
            yield from batches
        session.range(0, 1, 1, 1).mapInArrow(slow, "id long").collect()
    """
    bundle = bundle_of(scripted_operators=OPERATORS, rules="VALUE = 42")
    async with bell() as started, drivers.for_("with-rules", bundle, "acme") as driver:
        one = work(code.format(ring=started.ring))
        pending = asyncio.ensure_future(anext(driver.run([one])))
        await started.rung.wait()
        await driver.interrupt(one.tag)
        async with asyncio.timeout(60):
            assert (await pending).status == "interrupted"
        after = work("metrics['n'] = session.range(10).count()")
        (result,) = [result async for result in driver.run([after])]
    assert result.metrics == {"n": 10}
