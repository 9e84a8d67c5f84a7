"""Drivers whose operators run the Python text that stands in a task's config, so that a test says what the job does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from noetl.model.payload_ref import PayloadRef
from noetl.model.task import TaskGrant, TaskLease
from noetl.spark.drivers.protocol import Work
from noetl.spark.session.options import SparkOptions
from noetl.testing.servers.spark import SharedDriver, SharedDrivers, bundle_of

OPERATORS = """
import textwrap
from noetl.spark.drivers.protocol import WorkResult

def run_batch(session, works, lake, deliver):
    for work in works:
        deliver(_done(session, work, lake))

def make_unique(session, message, lake):
    return _done(session, message.work, lake)

def _done(session, work, lake):
    scope = {"session": session, "work": work, "lake": lake, "metrics": {}}
    exec(textwrap.dedent(work.grant.config["code"]), scope)
    lease = work.grant.lease
    return WorkResult(task_id=lease.task_id, attempt=lease.attempt, status="ok", metrics=scope["metrics"])
"""

WorkMaker = Callable[..., Work]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def scripted_options(spark_options: SparkOptions) -> SparkOptions:
    """Options of drivers that run what a test writes."""
    return msgspec.structs.replace(spark_options, operators="scripted_operators")


@pytest.fixture(scope="session")
def scripted_bundle() -> bytes:
    """The bundle with the operators of these tests."""
    return bundle_of(scripted_operators=OPERATORS)


@pytest.fixture(scope="session")
def scripted_drivers(scripted_options: SparkOptions) -> Iterator[SharedDrivers]:
    """The drivers that all tests of this process share."""
    drivers = SharedDrivers(scripted_options)
    yield drivers
    drivers.close()


@pytest.fixture
def driver(
    scripted_drivers: SharedDrivers, scripted_bundle: bytes
) -> Callable[[], AbstractAsyncContextManager[SharedDriver]]:
    """Hold the shared driver: `async with driver() as held`."""
    return lambda: scripted_drivers.for_("scripted", scripted_bundle, "acme")


@pytest.fixture
def work() -> WorkMaker:
    """Make a work that runs some Python text."""

    def make(code: str, *, job: str = "job", secrets: dict[str, Any] | None = None, **grant: Any) -> Work:
        number = next(_numbers)
        empty = PayloadRef(
            uri="memory://x", sha256="0" * 64, media_type="x/y", bytes=0, stored_sha256="0" * 64, encoding="identity"
        )
        given = TaskGrant(
            lease=TaskLease(task_id=f"task-{number}", attempt=1, token="t", seconds=30.0),
            execution_id=1,
            job_id="j",
            dag="dag",
            job=job,
            dag_version_id="v",
            operator="pyspark",
            runtime="spark",
            partition_key="all",
            strategy=None,
            config={"code": code},
            bundle=empty,
            code_digest="scripted",
            **grant,
        )
        return Work(grant=given, manifests={}, secrets=secrets or {})

    return make
