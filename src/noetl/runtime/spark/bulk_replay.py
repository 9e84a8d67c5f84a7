"""Replay and verification on Spark, connected to a runtime; Spark starts when the first organization is folded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import msgspec

from noetl.errors import Conflict, NotFound
from noetl.model.dataset import FileEntry
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import Streamed
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import open_pipelines
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.spark.ledger_access import ledger_reach
from noetl.runtime.wiring import Runtime
from noetl.spark.bulk_replay.organization import BulkFolds, Reached, SparkDrivers
from noetl.spark.bulk_replay.shard_plan import EventLakes, InLake
from noetl.spark.bulk_replay.state import BulkReplay
from noetl.spark.bulk_replay.verification import BulkVerifier
from noetl.spark.bulk_replay.work import LakeFile
from noetl.spark.drivers.pool import Drivers
from noetl.spark.event_lake.definition import DAG, JOB, mark_of

Source = Literal["ledger", "lake"]
_TRIES = 5


@dataclass(frozen=True)
class Bulk:
    """What folds whole organizations on Spark."""

    replay: BulkReplay
    verifier: BulkVerifier


@asynccontextmanager
async def open_bulk_replay(
    runtime: Runtime, source: Source = "ledger", *, reached: Reached | None = None, drivers: SparkDrivers | None = None
) -> AsyncIterator[Bulk]:
    """Give replay and verification on Spark for the time of the block, reading the ledger or the event lakes."""
    own = runtime.settings
    # No code of any organization runs in these drivers, so one serves them all.
    started = None if drivers else Drivers(spark_options(own.spark, own.lake, own.runtime.home), isolate=False)
    try:
        if source == "lake":
            async with _open_lakes(runtime) as lakes:
                yield _bulk(runtime, drivers or started, lakes, reached)
        else:
            yield _bulk(runtime, drivers or started, None, reached)
    finally:
        if started is not None:
            await started.close()


def _bulk(runtime: Runtime, drivers: SparkDrivers | None, lakes: EventLakes | None, reached: Reached | None) -> Bulk:
    assert drivers is not None
    folds, upcasters, database = runtime.folds, runtime.upcasters, runtime.database
    first, *others = runtime.projections.lines
    bulk = BulkFolds(
        drivers,
        ledger_reach(runtime),
        runtime.history,
        database,
        upcasters,
        runtime.ids.mint,
        lakes,
        payloads=runtime.payloads,
        erasures=runtime.erasures,
    )
    return Bulk(
        BulkReplay(bulk, runtime.history, database, runtime.payloads, folds, upcasters),
        BulkVerifier(
            bulk,
            runtime.history,
            runtime.payloads,
            first.store,
            first.folds,
            upcasters,
            database=database,
            reached=reached,
            others=others,
        ),
    )


@asynccontextmanager
async def _open_lakes(runtime: Runtime) -> AsyncIterator[_Lakes]:
    async with open_pipelines(runtime, "replay") as pipelines:

        def streamed(scope: Scope) -> Streamed:
            return Streamed(
                scope, pipelines, runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint,
                runtime.ids.mint_many, producer_of(runtime, "replay"),
            )  # fmt: skip

        yield _Lakes(streamed, Datasets(runtime.database, runtime.payloads, runtime.history))


class _Lakes:
    """The event lakes, as far as their commits say."""

    def __init__(self, streamed: Callable[[Scope], Streamed], datasets: Datasets) -> None:
        self._streamed = streamed
        self._datasets = datasets

    async def pinned(self, scope: Scope) -> InLake:
        """Return the mark of an organization's lake and the files that hold everything up to it."""
        streamed = self._streamed(scope)
        job = (await streamed.serving(DAG)).get(JOB)
        if job is None:
            raise NotFound(
                f"there is no event lake of {scope.tenant_id}/{scope.organization_id}",
                hint="`noetl lake sync` writes it; `--from ledger` needs none",
            )
        (output,) = job.outputs
        for _ in range(_TRIES):
            before = await streamed.state(job)
            parts = await self._datasets.partitions(scope, output.dataset_version)
            manifests = await self._datasets.manifests(scope, parts)
            # A commit in between may have moved files from one place to another; without one they belong to the mark.
            if await streamed.state(job) == before:
                files = (entry for manifest in manifests for entry in manifest.files)
                return InLake(mark_of(before), tuple(map(_file, files)))
        raise Conflict(
            f"the event lake of {scope.tenant_id}/{scope.organization_id} is being written", hint="try again"
        )


def _file(entry: FileEntry) -> LakeFile:
    shards = entry.stats.get("shard", {})
    told = msgspec.structs.replace(entry, stats={})
    return LakeFile(told, shards.get("min", 0), shards.get("max", SHARD_COUNT - 1))
