"""Spark for tests: one set of drivers and one cluster per test process, started once, used from any test's event loop."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from noetl.model.dataset import Manifest
from noetl.model.task import PartitionWrite
from noetl.spark.drivers.pool import Drivers
from noetl.spark.drivers.process import Driver
from noetl.spark.drivers.protocol import AnyErrand, Work, WorkResult
from noetl.spark.session import class_archive
from noetl.spark.session.java import find_java
from noetl.spark.session.options import SparkOptions
from noetl.testing.servers.spark_cluster import running_cluster

T = TypeVar("T")

_MAKE_ARCHIVE = (
    "import pathlib, sys; from noetl.spark.session.class_archive import make; make(pathlib.Path(sys.argv[1]))"
)


class SharedDriver:
    """A driver that lives in another thread's event loop."""

    def __init__(self, driver: Driver, shared: SharedDrivers) -> None:
        self._driver = driver
        self._shared = shared
        self.application_id = driver.application_id

    async def run(self, works: Sequence[Work]) -> AsyncIterator[WorkResult]:
        """Run works; works left when the caller stops are interrupted."""
        results = self._driver.run(works)
        try:
            for _ in works:
                yield await self._shared.there(_next(results))
        finally:
            await self._shared.there(_closed(results))

    async def do(self, errand: AnyErrand) -> WorkResult:
        """Do an errand of a playbook; it is interrupted when the caller stops."""
        return await self._shared.there(self._driver.do(errand))

    async def interrupt(self, job_tag: str) -> None:
        """Stop a work."""
        await self._shared.there(self._driver.interrupt(job_tag))

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let a work know that it should end."""
        await self._shared.there(self._driver.ask_to_stop(job_tag))

    async def interrupt_left(self, application_id: str, job_tag: str) -> None:
        """Stop what another driver left on a server."""
        await self._shared.there(self._driver.interrupt_left(application_id, job_tag))

    async def make_unique(self, work: Work, write: PartitionWrite, landed: Manifest) -> WorkResult:
        """Drop rows whose key landed meanwhile."""
        return await self._shared.there(self._driver.make_unique(work, write, landed))


class SharedDrivers:
    """The drivers of a test process: the same calls as `Drivers`, from any event loop."""

    def __init__(self, options: SparkOptions, *, live: int = 2) -> None:
        self.options = options
        self._live = live
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="spark drivers", daemon=True)
        self._thread.start()
        self._drivers = self.here(self._make())

    def warm(self) -> None:
        """Start one in the background."""
        self._loop.call_soon_threadsafe(self._drivers.warm)

    @asynccontextmanager
    async def for_(
        self, code_digest: str, bundle: bytes, organization: str, *, idle_seconds: float | None = None
    ) -> AsyncIterator[SharedDriver]:
        """Hold a driver; it is kept for the next test, whatever is asked."""
        held = self._drivers.for_(code_digest, bundle, organization)
        driver = await self.there(_entered(held))
        try:
            yield SharedDriver(driver, self)
        finally:
            await self.there(_left(held))

    async def there(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call in the drivers' loop and wait for it in the caller's."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def here(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call in the drivers' loop and block until it has ended."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """End the drivers and their loop."""
        self.here(self._drivers.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _make(self) -> Drivers:
        return Drivers(self.options, live=self._live)


async def _next(results: AsyncGenerator[WorkResult]) -> WorkResult:
    return await anext(results)


async def _closed(results: AsyncGenerator[WorkResult]) -> None:
    await results.aclose()


async def _entered(held: AbstractAsyncContextManager[Driver]) -> Driver:
    return await held.__aenter__()


async def _left(held: AbstractAsyncContextManager[Driver]) -> None:
    await held.__aexit__(None, None, None)


def bundle_of(**modules: str) -> bytes:
    """Return a bundle with these Python modules, by name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archived:
        for name, text in sorted(modules.items()):
            archived.writestr(zipfile.ZipInfo(f"{name}.py"), text)
    return data.getvalue()


@pytest.fixture(scope="session")
def spark_cache() -> Path:
    """The directory of the class-data archive, which all test processes of a user share; the first makes it now.

    It is waited for, and at no low priority, since in the background it would be ready only when the tests are nearly
    through. A second process does not wait for the first: it begins without the archive.
    """
    cache = Path(tempfile.gettempdir(), f"noetl-tests-{os.getuid()}", "spark")
    cache.mkdir(parents=True, exist_ok=True)
    java = find_java(cache)
    if not java.brought and not class_archive.archive_of(java, cache).exists():
        subprocess.run([sys.executable, "-c", _MAKE_ARCHIVE, str(cache)], check=False)
    return cache


@pytest.fixture(scope="session")
def spark_options(tmp_path_factory: pytest.TempPathFactory, spark_cache: Path) -> SparkOptions:
    """Two cores on this machine, few shuffle partitions, a lake of its own."""
    home = tmp_path_factory.mktemp("spark")
    return SparkOptions(
        home=str(home),
        cache=str(spark_cache),
        master="local[2]",
        memory="1g",
        conf={"spark.sql.shuffle.partitions": "2"},
        lake_root=str(home / "lake"),
    )


@pytest.fixture(scope="session")
def spark_drivers(spark_options: SparkOptions) -> Iterator[SharedDrivers]:
    """The drivers of this test process; Spark is started by the first test that uses one."""
    drivers = SharedDrivers(spark_options)
    yield drivers
    drivers.close()


@pytest.fixture(scope="session")
def spark_master(spark_options: SparkOptions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone cluster with two workers of one core each.

    One application has both cores, so a module closes its drivers before the next one starts its own.
    """
    with running_cluster(tmp_path_factory.mktemp("cluster"), spark_options) as master:
        yield master


@pytest.fixture(scope="module")
def cluster_drivers(
    spark_options: SparkOptions, spark_master: str, pytestconfig: pytest.Config
) -> Iterator[SharedDrivers]:
    """Drivers that are clients of a standalone cluster with two workers, which have the tests' modules."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.executorEnv.PYTHONPATH": str(pytestconfig.rootpath),
    }
    drivers = SharedDrivers(msgspec.structs.replace(spark_options, master=spark_master, conf=spark_options.conf | conf))
    yield drivers
    drivers.close()


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.xdist_group("spark_drivers")),
        pytest.param("cluster", marks=[pytest.mark.slow, pytest.mark.xdist_group("spark_cluster")]),
    ]
)
def any_drivers(request: pytest.FixtureRequest) -> SharedDrivers:
    """The Spark of the test process, and once more that of a cluster."""
    found: SharedDrivers = request.getfixturevalue("spark_drivers" if request.param == "local" else "cluster_drivers")
    return found
