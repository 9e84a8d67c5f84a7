"""Which files versions of partitions name: rows and manifests go in, paths with their sizes come out. Only reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
import orjson

from noetl.errors import PayloadMissing
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.datasets.manifests import Manifests

_AT_ONCE: Final = 32

_ROWS: Final = """
SELECT p.partition_key, p.version, p.manifest_ref, t.version IS NOT NULL AS trimmed, t.files_removed_at IS NOT NULL AS done
FROM noetl.partition_version AS p
LEFT JOIN noetl.trimmed_version AS t USING (tenant_id, organization_id, dataset_version, partition_key, version)
WHERE p.dataset_version = $1 AND NOT p.dropped AND ($2::text[] IS NULL OR p.partition_key = ANY ($2))
"""

PartVersion = tuple[str, int]


class NamedFiles:
    """Reads manifests of one organization."""

    def __init__(self, database: Database, payloads: PayloadStore, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._manifests = Manifests(scope, payloads)

    async def only_of(self, dataset_version: str, going: Collection[PartVersion]) -> dict[str, int]:
        """Return the files that these versions name and no version that stays does, with their sizes."""
        going = set(going)
        keys = sorted({key for key, _ in going})
        rows = await self._rows(dataset_version, keys)
        leaving = [ref for name, ref, trimmed, _ in rows if name in going]
        staying = [ref for name, ref, trimmed, _ in rows if name not in going and not trimmed]
        files = await self._files(leaving, may_miss=True)
        for path in await self._files(staying):
            files.pop(path, None)
        return files

    async def named(self, dataset_version: str) -> set[str]:
        """Return all files that versions of a generation name, those included that are about to go."""
        rows = await self._rows(dataset_version, None)
        leaving = await self._files([ref for _, ref, trimmed, done in rows if trimmed and not done], may_miss=True)
        return {*leaving, *await self._files([ref for _, ref, trimmed, _ in rows if not trimmed])}

    async def _rows(
        self, dataset_version: str, keys: list[str] | None
    ) -> list[tuple[PartVersion, PayloadRef, bool, bool]]:
        async with self._database.transaction(self._scope) as connection:
            found = await connection.fetch(_ROWS, dataset_version, keys)
        return [
            (
                (row["partition_key"], row["version"]),
                msgspec.convert(orjson.loads(row["manifest_ref"]), PayloadRef),
                row["trimmed"],
                row["done"],
            )
            for row in found
        ]

    async def _files(self, refs: Iterable[PayloadRef], *, may_miss: bool = False) -> dict[str, int]:
        """Return the files of manifests; one of a version that goes may be collected already, any other must be there."""
        wanted = list(refs)
        found: dict[str, int] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            batch = wanted[start : start + _AT_ONCE]
            try:
                manifests = list((await self._manifests.get(batch)).values())
            except PayloadMissing:
                if not may_miss:
                    raise
                manifests = await self._there(batch)
            found |= {entry.path: entry.bytes for one in manifests for entry in one.files}
        return found

    async def _there(self, refs: list[PayloadRef]) -> list[Manifest]:
        found: list[Manifest] = []
        for ref in refs:
            try:
                found += (await self._manifests.get([ref])).values()
            except PayloadMissing:
                continue
        return found
