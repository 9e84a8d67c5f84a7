"""Hashes every file that can be read, and says which are not what was committed and which task builds them again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec
import orjson

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import FileEntry, Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.datasets.manifests import Manifests
from noetl.pipelines.plan.rebuilding import BY_HAND, cannot_build_anew
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.spark.event_lake.definition import DAG as EVENTS
from noetl.spark.event_lake.facts.catalogue import DAG as FACTS
from noetl.spark.lake.integrity.checks import Damage

_TOGETHER: Final = 4
"""Files that are hashed at a time."""


class DamagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what was committed, and who can build it again."""

    dataset: str
    dag: str
    job: str
    dataset_version: str
    partition_key: str
    versions: tuple[int, ...]
    """The versions of the partition that name it, the newest first."""
    current: bool
    """Whether the last version of the partition is among them."""
    serving: bool
    """Whether readers have the generation now."""
    update_strategy: str | None
    source: str | None
    task_id: str
    """The task that wrote it."""
    entry: FileEntry
    damage: Damage

    def sentence(self) -> str:
        """Say it to a person."""
        where = f"{self.dataset}, generation {self.dataset_version[:8]}, partition {self.partition_key}"
        return f"{where}: {self.entry.path}: {self.damage.sentence()}"

    def remedy(self) -> str:
        """Say who can build it again, or what else mends it."""
        wrote = f"task {self.task_id} of {self.dag}.{self.job} wrote it"
        if self.dag in WRITTEN_ANEW:
            return f"{wrote}; `noetl lake rebuild` writes it anew from the ledger"
        if self.current and not self.serving:
            return (
                f"{wrote}; its generation does not serve: restore the file from a copy, or let its version serve first"
            )
        if self.current:
            why = cannot_build_anew(f"{self.dag}.{self.job}", self.update_strategy, self.source)
            if why is not None:
                return f"{wrote}; {why}: {BY_HAND}"
            return f"{wrote}; `noetl datasets repair {self.dataset}` has it built again"
        return f"{wrote}; only older versions have it: `noetl datasets repair {self.dataset}` puts equal bytes back"


class FilesReport(msgspec.Struct, kw_only=True):
    """What was looked at, and what is wrong."""

    files: int = 0
    bytes: int = 0
    hashed: bool = True
    """Whether every file was hashed; otherwise those alone whose stamp is not the one of their manifest."""
    damaged: list[DamagedFile] = []
    unreadable: list[str] = []
    """Manifests and files that could not be read, so that nothing is known of them: this is no damage, and nothing is built."""

    @property
    def clean(self) -> bool:
        """Whether everything is what was committed."""
        return not self.damaged and not self.unreadable


class DamageFinder:
    """Looks through the files of one organization."""

    def __init__(self, scope: Scope, database: Database, payloads: PayloadStore, files: LakeFiles) -> None:
        self._scope = scope
        self._database = database
        self._manifests = Manifests(scope, payloads)
        self._files = files

    async def find(
        self,
        generations: Collection[str] | None = None,
        *,
        hashed: bool = True,
        progress: Callable[[int], None] = lambda size: None,
    ) -> FilesReport:
        """Look at every file of these generations, or of all; `progress` is told the bytes of each."""
        async with self._database.transaction(self._scope) as connection:
            versions = await reachable_versions(connection, generations)
        report = FilesReport(hashed=hashed)
        for _, group in groupby(versions, key=lambda one: (one.dataset_version, one.partition_key)):
            named = [(one, await self._manifest(one, report)) for one in group]
            await self._partition(named, report, progress)
        if any(one.damage.why == "missing" for one in report.damaged):
            report.damaged = await self._still_named(report.damaged)
        return report

    async def entries(self, generations: Collection[str], *, current: bool = False) -> list[FileEntry]:
        """Return every file that can be read of these generations, or that their last versions name; none is opened."""
        async with self._database.transaction(self._scope) as connection:
            versions = [one for one in await reachable_versions(connection, generations) if one.current or not current]
        report = FilesReport()
        named = [(one, await self._manifest(one, report)) for one in versions]
        return [entry for _, (entry, _) in _files(named)]

    async def _still_named(self, damaged: Sequence[DamagedFile]) -> list[DamagedFile]:
        """Leave out files that are missing because retention let go of all versions that name them meanwhile."""
        async with self._database.transaction(self._scope) as connection:
            versions = await reachable_versions(connection, {one.dataset_version for one in damaged})
        left = {(one.dataset_version, one.partition_key, one.version) for one in versions}
        return [
            one
            for one in damaged
            if one.damage.why != "missing"
            or any((one.dataset_version, one.partition_key, version) in left for version in one.versions)
        ]

    async def _partition(
        self,
        named: Sequence[tuple[Reachable, Manifest | None]],
        report: FilesReport,
        progress: Callable[[int], None],
    ) -> None:
        gate = asyncio.Semaphore(_TOGETHER)
        look = self._files.checks.damage if report.hashed else self._files.checks.quick_damage

        async def one(entry: FileEntry, versions: list[Reachable]) -> DamagedFile | None:
            async with gate:
                try:
                    damage = await asyncio.to_thread(look, entry)
                except Unavailable as problem:
                    # A lake that is away altogether is told once.
                    if problem.message not in report.unreadable:
                        report.unreadable.append(problem.message)
                    damage = None
            progress(entry.bytes)
            return None if damage is None else _told(entry, versions, named, damage)

        files = dict(_files(named))
        report.files += len(files)
        report.bytes += sum(entry.bytes for entry, _ in files.values())
        found = await asyncio.gather(*(one(entry, versions) for entry, versions in files.values()))
        report.damaged += [each for each in found if each is not None]

    async def _manifest(self, one: Reachable, report: FilesReport) -> Manifest | None:
        try:
            return (await self._manifests.get([one.manifest]))[one.manifest.sha256]
        except NoetlError as problem:
            async with self._database.transaction(self._scope) as connection:
                left = await reachable_versions(connection, [one.dataset_version])
            if not any((each.partition_key, each.version) == (one.partition_key, one.version) for each in left):
                return None  # retention let go of it meanwhile
            where = f"{one.dataset}, generation {one.dataset_version[:8]}, partition {one.partition_key}"
            report.unreadable.append(f"{where}: the manifest of version {one.version}: {problem.message}")
            return None


def _files(
    named: Sequence[tuple[Reachable, Manifest | None]],
) -> Iterator[tuple[str, tuple[FileEntry, list[Reachable]]]]:
    """Give each file of a partition once, with the versions that name it."""
    found: dict[str, tuple[FileEntry, list[Reachable]]] = {}
    for one, manifest in named:
        for entry in () if manifest is None else manifest.files:
            found.setdefault(entry.path, (entry, []))[1].append(one)
    yield from found.items()


def _told(
    entry: FileEntry,
    versions: Sequence[Reachable],
    named: Sequence[tuple[Reachable, Manifest | None]],
    damage: Damage,
) -> DamagedFile:
    newest = versions[0]
    brought = next((one for one, _ in named if one.version == entry.added), versions[-1])
    return DamagedFile(
        dataset=newest.dataset,
        dag=newest.dag,
        job=newest.job,
        dataset_version=newest.dataset_version,
        partition_key=newest.partition_key,
        versions=tuple(one.version for one in versions),
        current=any(one.current for one in versions),
        serving=newest.serving,
        update_strategy=newest.update_strategy,
        source=newest.source,
        task_id=brought.task_id,
        entry=entry,
        damage=damage,
    )


_REACHABLE: Final = """
SELECT d.name AS dataset, d.producer_dag AS dag, d.producer_job AS job, v.dataset_version::text AS dataset_version,
       v.partition_key, v.version, v.current, v.task_id::text AS task_id, v.manifest_ref,
       c.dag_version_id IS NOT NULL AS serving, j.update_strategy, j.definition -> 'source' ->> 'kind' AS source
FROM noetl.partition_version AS v
JOIN noetl.dataset AS d USING (tenant_id, organization_id, dataset_uuid)
LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
LEFT JOIN noetl.trimmed_version AS t USING (tenant_id, organization_id, dataset_version, partition_key, version)
LEFT JOIN noetl.dag_current_version AS c ON c.dag = d.producer_dag AND EXISTS (
    SELECT FROM noetl.dag_version_dataset AS p
    WHERE p.dag_version_id = c.dag_version_id AND p.dataset_version = v.dataset_version)
LEFT JOIN noetl.job AS j ON j.dag_version_id = c.dag_version_id AND j.name = d.producer_job
WHERE NOT v.dropped AND v.manifest_ref IS NOT NULL AND r.purged_at IS NULL AND t.version IS NULL
  AND ($1::text[] IS NULL OR v.dataset_version::text = ANY ($1))
  AND NOT (d.producer_dag = ANY ($2) AND EXISTS (
    SELECT FROM noetl.partition_version AS later
    WHERE later.dataset_version = v.dataset_version AND later.partition_key = v.partition_key
      AND later.version > v.version AND later.dropped))
ORDER BY d.name, v.dataset_version, v.partition_key, v.version DESC
"""
WRITTEN_ANEW: Final = (EVENTS, FACTS)
"""No task builds these, and whoever drops them removes their files at once: they are written anew from the ledger."""


class Reachable(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a partition that a reader, a rollback or an as-of can ask for."""

    dataset: str
    dag: str
    job: str
    dataset_version: str
    partition_key: str
    version: int
    current: bool
    """Whether it is the last of its partition."""
    serving: bool
    """Whether readers have its generation now."""
    update_strategy: str | None
    """How the job that serves writes; none where its generation does not serve."""
    source: str | None
    """What starts that job, where it is a source that says so."""
    task_id: str
    manifest: PayloadRef


async def reachable_versions(connection: Connection, generations: Collection[str] | None) -> list[Reachable]:
    """Return them partition by partition, the newest first; of some generations alone, or of all."""
    chosen = None if generations is None else sorted(generations)
    rows = await connection.fetch(_REACHABLE, chosen, list(WRITTEN_ANEW))
    return [
        Reachable(
            **{
                **{name: value for name, value in row.items() if name != "manifest_ref"},
                "manifest": msgspec.convert(orjson.loads(row["manifest_ref"]), PayloadRef),
            }
        )
        for row in rows
    ]
