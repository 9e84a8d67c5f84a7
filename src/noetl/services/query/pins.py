"""Names go in; the generations and files they mean at one point of the history come out, fixed. Nothing is written.

What stands now is read in one look, together with the positions of all shards: that mark, asked for later, gives the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection, Database, bind, translated
from noetl.model.catalogue.queries import QueriedDataset
from noetl.model.dataset import Field, FileEntry
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.history import check_retained, serving
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.catalog.datasets.rows import Partition, Served, current_partitions, read_served
from noetl.services.query.access import Asker, denied, readers_of, standing_of
from noetl.services.query.errors import QueryRefused
from noetl.services.query.gate.relations import folded

_HEADS: Final = "SELECT position FROM noetl.shard ORDER BY shard"
_SCHEMAS: Final = "SELECT schema FROM noetl.dataset_schema WHERE dataset_version = $1 ORDER BY version DESC"
_KEPT_FILES: Final = 200_000


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One dataset as a query reads it throughout."""

    name: str
    dataset_uuid: str
    dataset_version: str
    columns: tuple[Field, ...]
    files: tuple[FileEntry, ...]
    uniform: bool
    """Whether all files have the same columns."""

    @property
    def told(self) -> QueriedDataset:
        """What is said of it."""
        return QueriedDataset(self.name, self.dataset_uuid, self.dataset_version)


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """All that a query reads, at one mark."""

    mark: Mark
    datasets: tuple[Pinned, ...]
    published: tuple[str, ...]
    """The names there are for this caller."""
    user_id: str | None


class Pinning:
    """The published datasets of all organizations, each seen only within its own."""

    def __init__(self, database: Database, datasets: Datasets) -> None:
        self._database = database
        self._datasets = datasets
        self._manifests = _Manifests(datasets)

    async def pin(self, asker: Asker, names: Sequence[str], mark: Mark | None) -> Pins:
        """Fix what names mean, now or at a mark; a dataset that is not for the caller is `Denied`.

        Names that mean nothing are left out: the gate says so at their place.
        """
        pool = await self._database.pool()
        with translated():
            async with (
                pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                await bind(connection, asker.scope)
                look = await _look(connection, asker, mark)
                current = {}
                for name in names:
                    found = look.found(name)
                    if found is not None:
                        current[name] = (found, await self._standing(connection, found, now=mark is None))
        datasets = [
            await self._pinned(asker.scope, name, found, parts, None if mark is None else look.mark)
            for name, (found, parts) in current.items()
        ]
        return Pins(
            mark=look.mark, datasets=tuple(datasets), published=tuple(sorted(look.readable)), user_id=look.user_id
        )

    async def _standing(self, connection: Connection, found: _Found, *, now: bool) -> tuple[list[Partition], list[str]]:
        parts = await current_partitions(connection, found.dataset_version) if now else []
        schemas = [row["schema"] for row in await connection.fetch(_SCHEMAS, found.dataset_version)]
        return [part for part in parts if not part.dropped], schemas

    async def _pinned(
        self, scope: Scope, name: str, found: _Found, standing: tuple[list[Partition], list[str]], mark: Mark | None
    ) -> Pinned:
        parts, schemas = standing
        if mark is None:
            columns = tuple(Field(*one) for one in orjson.loads(schemas[0])) if schemas else ()
        else:
            parts = await self._datasets.partitions(scope, found.dataset_version, mark)
            async with self._database.transaction(scope) as connection:
                await check_retained(connection, found.dataset_version, parts)
            columns = await self._datasets.schema(scope, found.dataset_version, mark)
        return Pinned(
            name=name,
            dataset_uuid=found.dataset_uuid,
            dataset_version=found.dataset_version,
            columns=columns,
            files=await self._manifests.files(scope, parts),
            uniform=len(schemas) < 2,
        )


class _Found(msgspec.Struct, frozen=True):
    dataset_uuid: str
    dataset_version: str


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the rows shows: the mark, and what is published under which name."""

    mark: Mark
    published: dict[str, _Found]
    readable: frozenset[str]
    user_id: str | None

    def found(self, name: str) -> _Found | None:
        """Return what a name means; engines make no difference between cases, so two names may not differ in it alone."""
        exact = [one for one in self.published if one == name]
        alike = exact or [one for one in self.published if folded(one) == folded(name)]
        if len(alike) > 1:
            raise QueryRefused("relation", f"{name!r} may mean {' or '.join(sorted(alike))}", hint="write it exactly")
        if not alike:
            return None
        if alike[0] not in self.readable:
            raise denied(alike[0])
        return self.published[alike[0]]


async def _look(connection: Connection, asker: Asker, mark: Mark | None) -> _Look:
    heads = Mark([row["position"] for row in await connection.fetch(_HEADS)]) if mark is None else mark
    served = await read_served(connection, await serving(connection, asker.scope, mark))
    published = _published(served)
    standing = await standing_of(connection, asker)
    readers = await readers_of(connection, [one.dataset_uuid for one in published.values()])
    readable = frozenset(
        name
        for name, one in published.items()
        if one.dataset_uuid in readers and standing.may_read(readers[one.dataset_uuid])
    )
    return _Look(mark=heads, published=published, readable=readable, user_id=standing.user_id)


def _published(served: Iterable[Served]) -> dict[str, _Found]:
    return {
        name: _Found(dataset, version.pointers[dataset])
        for version in served
        for name, dataset in version.publish.items()
        if dataset in version.pointers
    }


class _Manifests:
    """The files that partitions consist of; manifests never change, so those seen lately are kept."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._kept: OrderedDict[tuple[Scope, str], tuple[FileEntry, ...]] = OrderedDict()
        self._files = 0

    async def files(self, scope: Scope, partitions: Sequence[Partition]) -> tuple[FileEntry, ...]:
        """Return the files with rows, partition by partition."""
        found: dict[str, tuple[FileEntry, ...]] = {}
        missing = []
        for part in partitions:
            if part.manifest_ref is None:
                continue
            key = (scope, part.manifest_ref.sha256)
            kept = self._kept.get(key)
            if kept is None:
                missing.append(part)
            else:
                self._kept.move_to_end(key)
                found[part.manifest_ref.sha256] = kept
        for part, manifest in zip(missing, await self._datasets.manifests(scope, missing), strict=True):
            assert part.manifest_ref is not None
            entries = tuple(msgspec.structs.replace(one, stats={}) for one in manifest.files if one.rows)
            found[part.manifest_ref.sha256] = entries
            self._keep((scope, part.manifest_ref.sha256), entries)
        refs = [part.manifest_ref.sha256 for part in partitions if part.manifest_ref is not None]
        return tuple(entry for ref in refs for entry in found[ref])

    def _keep(self, key: tuple[Scope, str], entries: tuple[FileEntry, ...]) -> None:
        if key not in self._kept:
            self._files += len(entries) + 1
        self._kept[key] = entries
        while self._files > _KEPT_FILES:
            _, dropped = self._kept.popitem(last=False)
            self._files -= len(dropped) + 1
