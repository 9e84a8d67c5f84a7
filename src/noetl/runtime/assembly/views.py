"""Streaming views of one process, connected to its runtime: what runs them, what verifies them, and their sinks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.tools.postgres.target import Target, find_target
from noetl.errors import NotFound
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import Streamed
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import open_pipelines
from noetl.runtime.secrets import LocalSecrets
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.spark.ledger_access import ledger_reach
from noetl.runtime.wiring import Runtime
from noetl.services.query.access import Asker
from noetl.services.query.pins import Pinning
from noetl.services.views.run import SparkDrivers, Surroundings
from noetl.services.views.sinks.dataset import DatasetSink
from noetl.services.views.sinks.own_rows import OwnRows
from noetl.services.views.sinks.port import Sink
from noetl.services.views.sinks.table import TableSink
from noetl.services.views.supervisor import Keeping
from noetl.services.views.verification import Verifying
from noetl.services.views.versions import Version, Versions, ViewLease
from noetl.spark.drivers.pool import Drivers


@dataclass(frozen=True)
class ViewParts:
    """What people and processes do with views."""

    versions: Versions
    around: Surroundings
    verifying: Verifying


class Sinks:
    """The sinks of one process."""

    def __init__(self, runtime: Runtime, pipelines: Pipelines, stack: AsyncExitStack, role: str) -> None:
        self._runtime = runtime
        self._pipelines = pipelines
        self._stack = stack
        self._role = role
        self._streamed: dict[Scope, Streamed] = {}

    def __call__(self, scope: Scope, version: Version, lease: ViewLease | None) -> Sink:
        """Return the sink of a version."""
        database, own, base = self._runtime.database, version.definition, self._pipelines
        if version.sink == "dataset":
            return DatasetSink(
                lambda: self._streams(scope), base.engine.jobs.get, base.datasets, database, scope, version, lease
            )
        if version.sink == "table":
            return TableSink(
                lambda: self._target(scope, own.credential), database, scope, version.version_id, own, lease
            )
        return OwnRows(database, scope, version.version_id, own, lease)

    async def _streams(self, scope: Scope) -> Streamed:
        """Return the streamed datasets of an organization; leases of their commits are kept from the first use on."""
        if scope not in self._streamed:
            own, base = self._runtime, self._pipelines
            opened = Streamed(
                scope, Pipelines(scope, base.dags, base.datasets, base.engine), own.database, own.ledger, own.payloads,
                own.ids.mint, own.ids.mint_many, producer_of(own, self._role),
            )  # fmt: skip
            self._streamed[scope] = await self._stack.enter_async_context(opened.open())
        return self._streamed[scope]

    async def _target(self, scope: Scope, credential: str | None) -> Target:
        return await find_target(LocalSecrets(self._runtime.settings, self._runtime.database, scope), credential)


def versions_of(runtime: Runtime, role: str = "views") -> Versions:
    """Return the versions of views; nothing runs by itself, and no Spark is needed."""
    drafting = Drafting(runtime.ids.mint_many, producer_of(runtime, role))
    return Versions(runtime.database, runtime.ledger, runtime.payloads, drafting)


@asynccontextmanager
async def open_views(
    runtime: Runtime, pipelines: Pipelines | None = None, role: str = "views", drivers: SparkDrivers | None = None
) -> AsyncIterator[ViewParts]:
    """Give what runs and verifies views for the time of the block; Spark starts when it is needed."""
    settings = runtime.settings
    own = settings.views
    spark = spark_options(settings.spark, settings.lake, settings.runtime.home)
    async with AsyncExitStack() as stack:
        if drivers is None:
            # Each view holds its driver for as long as it runs, so there must be room for all of them.
            started = Drivers(spark, live=own.together + 1, isolate=settings.spark.isolation == "organization")
            stack.push_async_callback(started.close)
            drivers = started
        if pipelines is None:
            pipelines = await stack.enter_async_context(open_pipelines(runtime, role))
        versions = versions_of(runtime, role)
        around = Surroundings(
            versions=versions,
            drivers=drivers,
            sink_of=Sinks(runtime, pipelines, stack, role),
            fetch=runtime.payloads.fetch,
            pin=_Pinned(runtime),
            reach=ledger_reach(runtime),
            master=spark.master,
            checkpoint=own.checkpoint or str((settings.runtime.home / "views").absolute()),
            partitions=own.partitions,
        )
        yield ViewParts(versions, around, Verifying(around))


def keeping_of(
    runtime: Runtime, parts: ViewParts, *, scope: Scope | None = None, names: Collection[str] = ()
) -> Keeping:
    """Return what runs views, of all organizations unless told."""
    own = runtime.settings.views
    return Keeping(
        parts.around,
        worker=producer_of(runtime, "views"),
        lease_seconds=own.lease_seconds,
        every_seconds=own.every_seconds,
        together=own.together,
        scope=scope,
        names=names,
    )


@asynccontextmanager
async def open_keeping(runtime: Runtime, pipelines: Pipelines) -> AsyncIterator[None]:
    """Run the views of all organizations for the time of the block, unless the settings say otherwise."""
    if not runtime.settings.views.enabled:
        yield
        return
    async with open_views(runtime, pipelines) as parts:
        keeping = keeping_of(runtime, parts)
        keeping.start()
        try:
            yield
        finally:
            await keeping.stop()


class _Pinned:
    """Fixes the files of a dataset at a mark, as an administrator of its organization reads them."""

    def __init__(self, runtime: Runtime) -> None:
        datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
        self._pinning = Pinning(runtime.database, datasets)

    async def __call__(self, scope: Scope, dataset: str, mark: Mark) -> dict[str, Any]:
        """Return columns and files of a dataset as it was."""
        pins = await self._pinning.pin(Asker(scope=scope, name="views", admin=True), [dataset], mark)
        if not pins.datasets:
            raise NotFound(f"no dataset {dataset} was published then", hint="`noetl datasets list` lists them")
        found = pins.datasets[0]
        return {"columns": msgspec.to_builtins(found.columns), "files": msgspec.to_builtins(found.files)}
