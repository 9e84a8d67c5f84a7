"""Datasets by name: a name, and perhaps a mark, goes in; what a reader sees of it comes out, fixed. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import msgspec
import orjson

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import Field, Manifest
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.history import (
    EventReader,
    check_retained,
    gone_generations,
    partitions_at,
    positions,
    serving,
)
from noetl.pipelines.catalog.datasets.rows import (
    DATASET,
    GENERATION,
    Dataset,
    DatasetView,
    Generation,
    Partition,
    Served,
    current_partitions,
    dataset_of,
    every_partition,
    generation_of,
    read_generation,
    read_served,
)
from noetl.pipelines.plan import identity

_FETCHED_AT_ONCE: Final = 16
_ALL = f"SELECT {DATASET} FROM noetl.dataset AS d WHERE d.published OR NOT $1 ORDER BY d.name"  # noqa: S608 - constants
_BY_ID = f"SELECT {DATASET} FROM noetl.dataset AS d WHERE d.dataset_uuid::text = $1"  # noqa: S608
_BY_NAME = f"SELECT {DATASET} FROM noetl.dataset AS d WHERE d.name = $1"  # noqa: S608
_GENERATIONS = (
    f"SELECT {GENERATION} FROM noetl.dataset_version AS g WHERE g.dataset_uuid = $1 ORDER BY g.created_at DESC, 1"  # noqa: S608
)
_SCHEMAS = "SELECT version, schema FROM noetl.dataset_schema WHERE dataset_version = $1 ORDER BY version DESC"
_manifest = msgspec.json.Decoder(Manifest)


class Datasets:
    """The datasets of all organizations, each seen only within its own.

    Where a mark may be given, all is as it was then; names too.
    """

    def __init__(self, database: Database, payloads: PayloadStore, history: EventReader) -> None:
        self._database = database
        self._payloads = payloads
        self._history = history

    async def find(self, scope: Scope, name: str, mark: Mark | None = None) -> Dataset:
        """Return a dataset by the name it is published under, by `dag.job.output`, or by its id."""
        async with self._database.transaction(scope) as connection:
            return await self._find(connection, name, await self._served(connection, scope, mark))

    async def registered(self, scope: Scope, *, published_only: bool = False) -> list[Dataset]:
        """Return all datasets by name."""
        async with self._database.transaction(scope) as connection:
            return [dataset_of(row) for row in await connection.fetch(_ALL, published_only)]

    async def generations(self, scope: Scope, dataset_uuid: str) -> list[Generation]:
        """Return every build of a dataset, the newest first."""
        async with self._database.transaction(scope) as connection:
            return [generation_of(row) for row in await connection.fetch(_GENERATIONS, dataset_uuid)]

    async def gone(self, scope: Scope, dataset_uuid: str) -> frozenset[str]:
        """Return the generations of a dataset that retention let go of."""
        async with self._database.transaction(scope) as connection:
            return await gone_generations(connection, dataset_uuid)

    async def current_generation(self, scope: Scope, dataset: Dataset, mark: Mark | None = None) -> Generation | None:
        """Return the generation that readers of a dataset see; None if no version of its DAG serves it."""
        async with self._database.transaction(scope) as connection:
            return await self._current(connection, dataset, await self._served(connection, scope, mark))

    async def partitions(self, scope: Scope, dataset_version: str, mark: Mark | None = None) -> list[Partition]:
        """Return the partitions of a generation, without those that are dropped.

        Raises HistoryNotKept where retention let go of some of them.
        """
        async with self._database.transaction(scope) as connection:
            read = current_partitions if mark is None else every_partition
            found = await read(connection, dataset_version)
        if mark is not None:
            found = await partitions_at(self._database, self._history, scope, dataset_version, found, mark)
        async with self._database.transaction(scope) as connection:
            await check_retained(connection, dataset_version, found)
        return [partition for partition in found if not partition.dropped]

    async def view(self, scope: Scope, name: str, mark: Mark | None = None) -> DatasetView:
        """Fix what a reader of a dataset sees: later commits and cutovers do not touch it."""
        async with self._database.transaction(scope) as connection:
            served = await self._served(connection, scope, mark)
            dataset = await self._find(connection, name, served)
            generation = await self._current(connection, dataset, served)
        if generation is None:
            return DatasetView(dataset=dataset, generation=None)
        parts = await self.partitions(scope, generation.dataset_version, mark)
        return DatasetView(dataset=dataset, generation=generation, partitions=tuple(parts))

    async def view_of(self, scope: Scope, dataset_version: str, mark: Mark | None = None) -> DatasetView:
        """Fix what stands in one generation, whether readers see it or not."""
        async with self._database.transaction(scope) as connection:
            generation = await read_generation(connection, dataset_version)
            if generation is None:
                raise NotFound(f"there is no generation {dataset_version}", hint="`noetl datasets show` lists them")
            row = await connection.fetchrow(_BY_ID, generation.dataset_uuid)
        parts = await self.partitions(scope, dataset_version, mark)
        return DatasetView(dataset=dataset_of(row), generation=generation, partitions=tuple(parts))

    async def manifests(self, scope: Scope, partitions: Iterable[Partition]) -> list[Manifest]:
        """Return what partitions consist of, in their order."""
        gate = asyncio.Semaphore(_FETCHED_AT_ONCE)

        async def fetched(partition: Partition) -> Manifest | None:
            if partition.manifest_ref is None:
                return None
            async with gate:
                return _manifest.decode(await self._payloads.fetch(scope, partition.manifest_ref))

        found = await asyncio.gather(*map(fetched, partitions))
        return [manifest for manifest in found if manifest is not None]

    async def schema(self, scope: Scope, dataset_version: str, mark: Mark | None = None) -> tuple[Field, ...]:
        """Return the columns of a generation; none before its first commit."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_SCHEMAS, dataset_version)
        if mark is not None:
            stream = identity.dataset_stream(scope, dataset_version)
            wanted = [(stream.stream_id, row["version"]) for row in rows]
            placed = await positions(self._database, self._history, scope, [stream], wanted, mark)
            last = mark.positions[stream.shard]
            rows = [row for row in rows if placed[stream.stream_id, row["version"]] <= last]
        return tuple(Field(*column) for column in orjson.loads(rows[0]["schema"])) if rows else ()

    async def _served(self, connection: Connection, scope: Scope, mark: Mark | None) -> list[Served]:
        return await read_served(connection, await serving(connection, scope, mark))

    async def _find(self, connection: Connection, name: str, served: list[Served]) -> Dataset:
        published = {given: dataset for version in served for given, dataset in version.publish.items()}
        row = await connection.fetchrow(_BY_ID, published.get(name, name))
        if row is None:
            row = await connection.fetchrow(_BY_NAME, name)
        if row is not None:
            return dataset_of(row)
        names = {one["name"] for one in await connection.fetch(_ALL, False)} | published.keys()  # noqa: FBT003 - a query's value
        near = get_close_matches(name, sorted(names), n=1)
        hint = f"did you mean {near[0]}?" if near else "`noetl datasets list` shows what there is"
        raise NotFound(f"there is no dataset {name}", hint=hint)

    async def _current(self, connection: Connection, dataset: Dataset, served: list[Served]) -> Generation | None:
        for version in served:
            pointer = version.pointers.get(dataset.dataset_uuid)
            if version.dag == dataset.dag and pointer is not None:
                return await read_generation(connection, pointer)
        return None
