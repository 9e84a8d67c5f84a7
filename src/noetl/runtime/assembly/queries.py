"""Queries over datasets, connected to a runtime: engines that start when they are first asked, and end with the block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_organization
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import files_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.wiring import Runtime
from noetl.services.query.access import Readers
from noetl.services.query.audit import Audit
from noetl.services.query.duck.pool import Duck
from noetl.services.query.on_spark import OnSpark
from noetl.services.query.options import DuckOptions, Limits
from noetl.services.query.pins import Pinning
from noetl.services.query.queries import Queries
from noetl.spark.drivers.pool import Drivers
from noetl.spark.lake.integrity.checks import Bound


@asynccontextmanager
async def open_queries(runtime: Runtime, role: str = "server") -> AsyncIterator[Queries]:
    """Give what answers queries for the time of the block."""
    settings = runtime.settings
    duck = Duck(_duck_options(settings))
    spark = spark_options(settings.spark, settings.lake, settings.runtime.home)
    drivers = Drivers(spark, live=settings.spark.drivers, isolate=settings.spark.isolation == "organization")
    own = settings.query
    limits = Limits(
        rows=own.rows,
        most_rows=own.max_rows,
        seconds=own.timeout_seconds,
        most_seconds=own.max_timeout_seconds,
        most_bytes=own.max_answer_bytes,
        concurrent=own.concurrent,
        proof=Bound(bytes=own.proof_max_bytes, seconds=own.proof_timeout_seconds),
    )
    checks = files_of(settings).checks
    datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
    pinning = Pinning(runtime.database, datasets)
    try:
        yield Queries(pinning, query_audit(runtime, role), duck, checks, OnSpark(drivers), runtime.ids.mint, limits)
    finally:
        await duck.close()
        await drivers.close()


def query_audit(runtime: Runtime, role: str) -> Audit:
    """Return the record of queries."""
    return Audit(runtime.database, runtime.ledger, runtime.ids.mint_many, producer_of(runtime, role))


def dataset_readers(runtime: Runtime, role: str) -> Readers:
    """Return what grants and revokes the reading of datasets."""
    return Readers(runtime.database, runtime.ledger, runtime.ids.mint_many, producer_of(runtime, role))


async def mark_of(runtime: Runtime, scope: Scope, point: str | None) -> Mark | None:
    """Return the mark of a point of the history; none for what stands now, which is looked up with the data themselves."""
    as_of = HEAD if point is None else AsOf.parse(point)
    if as_of == HEAD:
        return None
    return await resolve_organization(runtime.history, runtime.database, scope, as_of)


def _duck_options(settings: Settings) -> DuckOptions:
    spark = spark_options(settings.spark, settings.lake, settings.runtime.home)
    own = settings.query
    return DuckOptions(
        home=str(settings.runtime.home / "query"),
        lake_root=spark.lake_root,
        lake_options=spark.lake_options,
        memory=own.memory,
        threads=own.threads,
        spill=own.spill,
        most_bytes=own.max_answer_bytes,
        processes=own.processes,
    )
