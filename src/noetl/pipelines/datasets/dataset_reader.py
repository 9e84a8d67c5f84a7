"""Datasets for people: a name, a generation and a mark go in, what stood there comes out, fixed. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import Field, FileEntry
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.model.task import CheckResult
from noetl.pipelines.catalog.dags.reader import DagReader
from noetl.pipelines.catalog.dags.rows import DagVersion
from noetl.pipelines.catalog.datasets.history import EventReader
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.catalog.datasets.rows import DATASET, Dataset, DatasetView, Generation, dataset_of
from noetl.pipelines.plan import identity

Use = Literal["current", "candidate", "earlier", "gone"]
_OF_DATASET: Final = frozenset(Dataset.__struct_fields__)
_LISTED: Final = f"""
SELECT {DATASET}, p.dataset_version::text AS dataset_version, s.*
FROM noetl.dataset AS d
LEFT JOIN noetl.dag_current_version AS c ON c.dag = d.producer_dag
LEFT JOIN noetl.dag_version_dataset AS p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = d.dataset_uuid
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(v.row_count), 0)::bigint AS rows,
           coalesce(sum(v.bytes), 0)::bigint AS bytes, max(v.committed_at) AS last_commit
    FROM noetl.partition_version AS v WHERE v.dataset_version = p.dataset_version AND v.current AND NOT v.dropped
) AS s
WHERE d.published OR NOT $1 ORDER BY d.name
"""  # noqa: S608 - constants


class ListedDataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset and what readers find in it now; no generation where no version of its DAG serves it."""

    dataset: Dataset
    dataset_version: str | None
    partitions: int
    rows: int
    bytes: int
    last_commit: datetime | None


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A generation, and what it is used for: readers have it, a version under way brings it, or it has served its time.

    One that is `gone` cannot serve again: retention let go of its data.
    """

    generation: Generation
    use: Use
    dag_versions: tuple[str, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of a dataset at a mark: asked for again, it is the same, and so is its checksum."""

    view: DatasetView
    generation: Generation
    schema: tuple[Field, ...]
    mark: Mark


class PartitionFile(msgspec.Struct, frozen=True):
    """A file of a dataset, and the partition it belongs to."""

    partition_key: str
    entry: FileEntry


class DatasetReader:
    """The datasets of one organization."""

    def __init__(self, scope: Scope, database: Database, payloads: PayloadStore, history: EventReader) -> None:
        self._scope = scope
        self._database = database
        self._history = history
        self._dags = DagReader(database, payloads)
        self.datasets = Datasets(database, payloads, history)

    async def listed(self, *, published_only: bool) -> list[ListedDataset]:
        """Return datasets by name, with what stands in the generation that readers have."""
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_LISTED, published_only)
        return [
            ListedDataset(
                dataset=dataset_of({name: value for name, value in row.items() if name in _OF_DATASET}),
                **{name: value for name, value in row.items() if name not in _OF_DATASET},
            )
            for row in rows
        ]

    async def builds(self, dataset: Dataset) -> list[Build]:
        """Return every generation of a dataset, the newest first."""
        versions = await self._dags.versions(self._scope, dataset.dag)
        gone = await self.datasets.gone(self._scope, dataset.dataset_uuid)
        found = []
        for generation in await self.datasets.generations(self._scope, dataset.dataset_uuid):
            using = [one for one in versions if one.pointers.get(dataset.dataset_uuid) == generation.dataset_version]
            found.append(
                Build(
                    generation=generation,
                    use="gone" if generation.dataset_version in gone else _use(using),
                    dag_versions=tuple(version.dag_version_id for version in using),
                )
            )
        return found

    async def seen(self, name: str, generation: str | None, mark: Mark) -> Seen:
        """Fix what stood in a dataset at a mark: in the generation that served then, or in the one that is named."""
        if generation is None:
            view = await self.datasets.view(self._scope, name, mark)
        else:
            dataset = await self.datasets.find(self._scope, name, mark)
            chosen = chosen_build(dataset, await self.builds(dataset), generation)
            view = await self.datasets.view_of(self._scope, chosen.generation.dataset_version, mark)
        if view.generation is None:
            raise not_served(view.dataset)
        schema = await self.datasets.schema(self._scope, view.generation.dataset_version, mark)
        return Seen(view=view, generation=view.generation, schema=schema, mark=mark)

    async def files(self, seen: Seen) -> list[PartitionFile]:
        """Return the files a reader sees, partition by partition."""
        manifests = await self.datasets.manifests(self._scope, seen.view.partitions)
        return [PartitionFile(one.partition_key, entry) for one in manifests for entry in one.files]

    async def checks(self, task_id: str) -> tuple[CheckResult, ...]:
        """Return how the checks of a task came out that committed something."""
        async for event in self._history.read(identity.task_stream(self._scope, task_id)):
            if event.event_type == "task.completed":
                return msgspec.convert(event.context.get("checks", ()), tuple[CheckResult, ...])
        return ()

    async def unique_key(self, seen: Seen) -> tuple[str, ...]:
        """Return the columns by which the job tells rows apart; none if it names none."""
        for version in await self._dags.versions(self._scope, seen.view.dataset.dag):
            if version.pointers.get(seen.view.dataset.dataset_uuid) == seen.generation.dataset_version:
                jobs = await self._dags.jobs(self._scope, version.dag_version_id)
                return next(job.definition.unique_key for job in jobs if job.name == seen.view.dataset.job)
        return ()


def chosen_build(dataset: Dataset, builds: Sequence[Build], text: str) -> Build:
    """Return the generation whose id begins so; `current` and `candidate` name the newest of that use, `last` of all."""
    if text == "last" and builds:
        return builds[0]
    found = [
        build for build in builds if text and (build.use == text or build.generation.dataset_version.startswith(text))
    ]
    if len(found) == 1 or (found and found[0].use == text):
        return found[0]
    known = ", ".join(f"{build.generation.dataset_version[:8]} ({build.use})" for build in builds[:10])
    raise (InputError if found else NotFound)(
        f"dataset {dataset.name} has {'several generations' if found else 'no generation'} {text}",
        hint=f"it has {known}" if known else "nothing of it is built yet",
    )


def compared_builds(
    dataset: Dataset, builds: Sequence[Build], before: str | None, after: str | None
) -> tuple[Build, Build]:
    """Return the two generations to compare: the current one and the newest candidate, unless told."""
    old = chosen_build(dataset, builds, before or "current")
    if after is None and old.use != "current":
        after = "current"
    try:
        return old, chosen_build(dataset, builds, after or "candidate")
    except NotFound:
        if after is not None:
            raise
        raise InputError(
            f"dataset {dataset.name} has no candidate to compare the current generation with",
            hint="deploy a changed job first, or name two generations with --from and --to",
        ) from None


def not_served(dataset: Dataset) -> NotFound:
    """Say that readers have nothing of a dataset."""
    return NotFound(
        f"no version of DAG {dataset.dag} served dataset {dataset.name} at that point",
        hint=f"`noetl dag activate {dataset.dag}` lets one serve, --generation names one that does not",
    )


def _use(versions: Sequence[DagVersion]) -> Use:
    statuses = {version.status for version in versions}
    if "active" in statuses:
        return "current"
    return "candidate" if statuses & {"building", "ready"} else "earlier"
