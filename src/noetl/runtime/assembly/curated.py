"""Curated views connected to a runtime: the declared views, and the engines that compute them, for the time of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.extensions import load_curated_views
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.wiring import Runtime
from noetl.services.curated.on_postgres import InPostgres
from noetl.services.curated.on_spark import OnSparkDrivers
from noetl.services.curated.reads import CuratedReads
from noetl.services.curated.registry import CuratedViews
from noetl.spark.drivers.pool import Drivers


def curated_views(settings: Settings) -> CuratedViews:
    """Return the built-in views and those that the settings name."""
    return CuratedViews(load_curated_views(settings.curated.views))


@asynccontextmanager
async def open_curated(runtime: Runtime, role: str = "server") -> AsyncIterator[CuratedReads]:
    """Give what reads curated views for the time of the block; Spark starts when it is first asked for."""
    settings = runtime.settings
    seconds = settings.curated.timeout_seconds
    views = curated_views(settings)
    spark = spark_options(settings.spark, settings.lake, settings.runtime.home)
    drivers = Drivers(spark, live=1, isolate=settings.spark.isolation == "organization")
    reach = {"database_url": runtime.database.url, "as_roles": settings.database.url is None}
    try:
        yield CuratedReads(
            runtime.database,
            runtime.ledger,
            views,
            {
                "postgres": InPostgres(runtime.database, seconds),
                "spark": OnSparkDrivers(drivers, runtime.ledger, reach, seconds),
            },
            runtime.ids.mint_many,
            producer_of(runtime, role),
        )
    finally:
        await drivers.close()
