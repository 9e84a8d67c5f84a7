"""Which driver serves whom, how many there are, and what happens when one dies or its worker does."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.unit.spark.drivers.conftest import OPERATORS, WorkMaker
from tests.unit.spark.drivers.meeting import bell

from noetl.errors import Unavailable
from noetl.spark.drivers.pool import Driver, Drivers, unpack
from noetl.spark.drivers.protocol import Work, WorkResult
from noetl.spark.session.options import SparkOptions
from noetl.testing.servers.spark import bundle_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@asynccontextmanager
async def opened(options: SparkOptions, *, live: int = 2, isolate: bool = True) -> AsyncIterator[Drivers]:
    drivers = Drivers(options, live=live, isolate=isolate)
    try:
        yield drivers
    finally:
        await drivers.close()


async def only(driver: Driver, work: Work) -> WorkResult:
    (result,) = [result async for result in driver.run([work])]
    return result


async def test_two_versions_of_one_module_run_side_by_side(scripted_options: SparkOptions, work: WorkMaker) -> None:
    """INV-60."""
    code = """
        import rules
        def labelled(batches):
            import pyarrow as pa, rules
            for batch in batches:
                yield pa.RecordBatch.from_pydict({"v": [rules.VALUE] * batch.num_rows})
        rows = session.range(1).mapInArrow(labelled, "v string").collect()
        metrics["driver"], metrics["worker"] = rules.VALUE, rows[0].v
    """
    async with opened(scripted_options) as drivers:

        async def version(name: str) -> tuple[str, str, str]:
            bundle = bundle_of(scripted_operators=OPERATORS, rules=f"VALUE = {name!r}")
            async with drivers.for_(f"code-{name}", bundle, "acme") as driver:
                result = await only(driver, work(code))
            assert result.status == "ok", result.log
            return driver.application_id, result.metrics["driver"], result.metrics["worker"]

        old, new = await asyncio.gather(version("old"), version("new"))
        assert old[1:] == ("old", "old")
        assert new[1:] == ("new", "new")
        assert old[0] != new[0]


async def test_a_driver_that_dies_fails_its_works_for_now_and_is_replaced(
    scripted_options: SparkOptions, scripted_bundle: bytes, work: WorkMaker
) -> None:
    async with opened(scripted_options, live=1, isolate=False) as drivers, bell() as started:
        drivers.warm()
        async with drivers.for_("scripted", scripted_bundle, "acme") as driver:
            run = driver.run([work(f"{started.ring}\nimport time; time.sleep(600)")])
            pending = asyncio.ensure_future(anext(run))
            await started.rung.wait()
            found = psutil.Process(driver.pid)
            family = [found, *found.children(recursive=True)]
            found.kill()
            lost = await pending
            await run.aclose()
        assert (lost.status, lost.error_kind, lost.retryable) == ("error", "driver_lost", True)
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=30)
        assert not alive
        async with drivers.for_("scripted", scripted_bundle, "acme") as driver:
            assert (await only(driver, work("metrics['n'] = session.range(3).count()"))).metrics == {"n": 3}
            assert await _application(drivers, scripted_bundle, "another") == driver.application_id


async def test_organizations_share_no_driver_where_they_are_isolated(
    scripted_options: SparkOptions, scripted_bundle: bytes
) -> None:
    async with opened(scripted_options, live=1, isolate=True) as drivers:
        async with drivers.for_("scripted", scripted_bundle, "one") as driver:
            first = driver.application_id
            second = asyncio.ensure_future(_application(drivers, scripted_bundle, "two"))
            # The limit is reached and the one driver is held: the other organization waits for its end.
            done, _ = await asyncio.wait([second], timeout=0)
            assert not done
        assert await second != first


async def _application(drivers: Drivers, bundle: bytes, organization: str) -> str:
    async with drivers.for_("scripted", bundle, organization) as driver:
        return driver.application_id


async def test_spark_that_cannot_start_says_why(scripted_options: SparkOptions) -> None:
    wrong = msgspec.structs.replace(scripted_options, conf={"spark.memory.fraction": "many"})
    async with opened(wrong) as drivers:
        with pytest.raises(Unavailable, match=r"(?s)Spark did not start.*memory.fraction"):
            await _application(drivers, b"", "acme")


async def test_closed_drivers_start_nothing(scripted_options: SparkOptions) -> None:
    async with opened(scripted_options) as drivers:
        pass
    with pytest.raises(Unavailable, match="closed"):
        await _application(drivers, b"", "acme")


WORKER = """
import asyncio, sys
import msgspec
from noetl.spark.drivers.process import DriverProcess
from noetl.spark.session.options import SparkOptions

async def main():
    process = DriverProcess(msgspec.json.decode(sys.argv[1], type=SparkOptions))
    await process.ready()
    print(process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_killed_worker_leaves_no_driver_and_no_jvm(scripted_options: SparkOptions) -> None:
    """INV-59."""
    options = msgspec.json.encode(scripted_options).decode()
    with subprocess.Popen([sys.executable, "-c", WORKER, options], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        driver = psutil.Process(int(worker.stdout.readline()))
        family = [driver, *driver.children(recursive=True)]
        assert any("java" in one.name() for one in family)
        worker.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive


def test_a_bundle_is_unpacked_once_and_whole(tmp_path: Path) -> None:
    bundle = bundle_of(rules="VALUE = 1")
    directory, zipped = unpack(bundle, tmp_path / "bundles", "digest")
    assert unpack(bundle, tmp_path / "bundles", "digest") == (directory, zipped)
    assert (directory / "rules.py").read_text() == "VALUE = 1"
    assert sorted(path.name for path in (tmp_path / "bundles").iterdir()) == ["digest", "digest.zip"]


async def test_a_driver_that_nobody_wants_for_so_long_is_let_go(
    scripted_options: SparkOptions, scripted_bundle: bytes
) -> None:
    async with opened(scripted_options, live=1) as drivers:
        async with drivers.for_("scripted", scripted_bundle, "acme", idle_seconds=0.0) as driver:
            async with drivers.for_("scripted", scripted_bundle, "acme", idle_seconds=0.1) as same:
                assert same.pid == driver.pid
            found = psutil.Process(driver.pid)
        _, alive = await asyncio.to_thread(psutil.wait_procs, [found], timeout=60)
        assert not alive
