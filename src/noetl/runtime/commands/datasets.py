"""What commands that read datasets open: a reader of datasets, of their lineage and of the lake's files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.kernel.replay.report import VerifyReport
    from noetl.model.mark import Mark
    from noetl.pipelines.changes.engine import Changes
    from noetl.pipelines.damage.finder import DamageFinder
    from noetl.pipelines.damage.repair import Repairs
    from noetl.pipelines.datasets.dataset_reader import DatasetReader, Seen
    from noetl.pipelines.datasets.lineage import LineageReader
    from noetl.pipelines.explain.explanation import Explaining
    from noetl.pipelines.tables.lake_files import LakeFiles
    from noetl.runtime.wiring import Runtime
    from noetl.services.query.access import Readers


@dataclass(frozen=True)
class Opened:
    """The datasets of the organization the settings name."""

    runtime: Runtime
    reader: DatasetReader

    async def mark(self, point: str | None) -> Mark:
        """Return the mark of a point in the history, or of now."""
        from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_organization

        runtime = self.runtime
        as_of = HEAD if point is None else AsOf.parse(point)
        return await resolve_organization(runtime.history, runtime.database, runtime.scope, as_of)

    async def seen(self, name: str, generation: str | None, point: str | None) -> Seen:
        """Fix what a dataset is at a point in the history."""
        return await self.reader.seen(name, generation, await self.mark(point))

    def readers(self) -> Readers:
        """Return what grants and revokes the reading of datasets."""
        from noetl.runtime.assembly.queries import dataset_readers

        return dataset_readers(self.runtime, "cli")

    def files(self) -> LakeFiles:
        """Return the files of the lake."""
        from noetl.runtime.assembly.pipelines import files_of

        return files_of(self.runtime.settings)

    def finder(self) -> DamageFinder:
        """Return what finds files that are not what was committed."""
        from noetl.pipelines.damage.finder import DamageFinder

        own = self.runtime
        return DamageFinder(own.scope, own.database, own.payloads, self.files())

    def explaining(self) -> Explaining:
        """Return what tells which inputs rows were made of."""
        from noetl.pipelines.explain.explanation import Explaining

        own = self.runtime
        return Explaining(own.scope, own.database, own.payloads, own.history, self.files())

    def lineage(self) -> LineageReader:
        """Return what reads which datasets were made of which."""
        from noetl.pipelines.datasets.lineage import LineageReader

        own = self.runtime
        return LineageReader(own.scope, own.database, own.payloads, own.history)


@asynccontextmanager
async def opened() -> AsyncIterator[Opened]:
    """Connect for the time of the block; nothing is driven or written by it."""
    from noetl.pipelines.datasets.dataset_reader import DatasetReader
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        yield Opened(runtime, DatasetReader(runtime.scope, runtime.database, runtime.payloads, runtime.history))


def repairs_of(runtime: Runtime, changes: Changes, finished: Callable[[int], Awaitable[str | None]]) -> Repairs:
    """Return what has damaged partitions built again."""
    from noetl.pipelines.damage.repair import Repairs
    from noetl.pipelines.datasets.dataset_reader import DatasetReader

    reader = DatasetReader(runtime.scope, runtime.database, runtime.payloads, runtime.history)
    one = Opened(runtime, reader)
    return Repairs(runtime.scope, reader, one.finder(), one.files(), changes, finished)


async def with_files(
    runtime: Runtime, report: VerifyReport, *, hashed: bool, progress: Callable[[int], None]
) -> VerifyReport:
    """Add to what a verification found the files of datasets that are not what was committed."""
    from noetl.pipelines.damage.differences import with_damage
    from noetl.pipelines.damage.finder import DamageFinder
    from noetl.runtime.assembly.pipelines import files_of

    finder = DamageFinder(report.scope, runtime.database, runtime.payloads, files_of(runtime.settings))
    return with_damage(report, await finder.find(hashed=hashed, progress=progress))
