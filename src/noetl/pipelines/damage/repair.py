"""Has damaged partitions built again by ordinary tasks, and puts the same bytes back where older versions name them.

A partition is said to be wrong, as by hand, and its job commits a version with files of its own. Older versions still name
the damaged file: where a file that was built has the very bytes that were committed, they are copied to its path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from noetl.errors import Conflict, InputError
from noetl.model.dataset import FileEntry
from noetl.model.stream import Scope
from noetl.pipelines.changes.engine import Changes
from noetl.pipelines.damage.finder import WRITTEN_ANEW, DamagedFile, DamageFinder, FilesReport
from noetl.pipelines.datasets.dataset_reader import DatasetReader
from noetl.pipelines.tables.lake_files import LakeFiles

_NOTE: Final = "a file of it is damaged"

Finished = Callable[[int], Awaitable[str | None]]
"""Waits for a run and returns its error, if it has one."""


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair did, and what it could not do."""

    dataset: str
    before: FilesReport
    partitions: tuple[str, ...]
    """Partitions that were built again."""
    restored: tuple[str, ...]
    """Paths to which the committed bytes were put back."""
    errors: tuple[str, ...]
    after: FilesReport


class Repairs:
    """Repairs datasets of one organization."""

    def __init__(
        self,
        scope: Scope,
        reader: DatasetReader,
        finder: DamageFinder,
        files: LakeFiles,
        changes: Changes,
        finished: Finished,
    ) -> None:
        self._scope = scope
        self._reader = reader
        self._finder = finder
        self._files = files
        self._changes = changes
        self._finished = finished

    async def repair(self, name: str, *, by: str) -> Repaired:
        """Find what is damaged in a dataset, have it built again, and look once more."""
        dataset = await self._reader.datasets.find(self._scope, name)
        if dataset.dag in WRITTEN_ANEW:
            raise InputError(
                f"{dataset.name} is written from the ledger, and no task builds it",
                hint="`noetl lake rebuild` writes the lake and its facts anew",
            )
        generations = [build.generation.dataset_version for build in await self._reader.builds(dataset)]
        before = await self._finder.find(generations)
        built, errors = await self._built_again(name, before.damaged, generations, by)
        restored = await self._restored(before.damaged, generations) if before.damaged else []
        after = await self._finder.find(generations) if before.damaged else before
        return Repaired(
            dataset=dataset.name,
            before=before,
            partitions=tuple(built),
            restored=tuple(restored),
            errors=tuple(errors),
            after=after,
        )

    async def _built_again(
        self, name: str, damaged: Sequence[DamagedFile], generations: Sequence[str], by: str
    ) -> tuple[list[str], list[str]]:
        """Build partitions again, and return them with what went wrong with others."""
        paths: dict[str, set[str]] = {}
        for one in damaged:
            if one.current and one.serving:
                paths.setdefault(one.partition_key, set()).add(one.entry.path)
        built, errors = [], []
        for key in sorted(paths):
            # A job that is worked whole has built the others with the first.
            named = {entry.path for entry in await self._finder.entries(generations, current=True)}
            error = await self._built(name, key, by) if paths[key] & named else None
            if error is None:
                built.append(key)
            else:
                errors.append(error)
        return built, errors

    async def _built(self, name: str, key: str, by: str) -> str | None:
        """Build one partition again; an error does not keep the others from being built."""
        try:
            one = await self._changes.invalidations.invalidate(
                self._scope, name, partition_key=key, reason="correction", note=_NOTE, by=by, rebuild=True
            )
        except (InputError, Conflict) as problem:
            return f"{key}: {problem.message}"
        error = await self._finished(one.invalidation_id)
        return None if error is None else f"{key}: {error}"

    async def _restored(self, damaged: Sequence[DamagedFile], generations: Sequence[str]) -> list[str]:
        """Put back bytes that some sound file of the dataset has, proven by the digest that was committed."""
        good = await self._sound(generations, {one.entry.path for one in damaged})
        restored = []
        for one in damaged:
            source = good.get((one.entry.sha256, one.entry.bytes))
            if source is not None:
                await asyncio.to_thread(self._files.restore, one.entry, source)
                restored.append(one.entry.path)
        return restored

    async def _sound(self, generations: Sequence[str], but: set[str]) -> dict[tuple[str, int], FileEntry]:
        found: dict[tuple[str, int], FileEntry] = {}
        for entry in await self._finder.entries(generations):
            if entry.path not in but:
                found.setdefault((entry.sha256, entry.bytes), entry)
        return found
