"""Versions of playbooks in memory, for tests and simulation; their events go to the ledger like any other."""

from __future__ import annotations

from noetl.engine.catalog.playbooks import Entry
from noetl.kernel.ledger.port import Ledger
from noetl.model.event import Appended, Draft
from noetl.model.stream import Scope, Stream


class MemoryEntries:
    """See `CatalogEntries` for the promises."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[Scope, dict[str, Entry]] = {}

    async def by_id(self, scope: Scope, catalog_id: str) -> Entry | None:
        """Return a version by its catalog id."""
        return self._kept.get(scope, {}).get(catalog_id)

    async def versions(self, scope: Scope, path: str) -> list[Entry]:
        """Return all versions of a path."""
        found = [entry for entry in self._kept.get(scope, {}).values() if entry.path == path]
        return sorted(found, key=lambda entry: entry.version)

    async def newest(self, scope: Scope, prefix: str, after: str, limit: int) -> list[Entry]:
        """Return the newest version in use of each path."""
        used = [entry for entry in self._kept.get(scope, {}).values() if not entry.removed]
        found = {entry.path: entry for entry in sorted(used, key=lambda entry: entry.version)}
        return [found[path] for path in sorted(found) if path.startswith(prefix) and path > after][:limit]

    async def stream_version(self, stream: Stream) -> int:
        """Return the version of a path's stream."""
        return len([event async for event in self._ledger.read(stream)])

    async def add(self, stream: Stream, entry: Entry, draft: Draft, expected_version: int) -> None:
        """Keep a new version once its event stands."""
        await self._ledger.append(stream, [draft], expected_version)
        self._kept.setdefault(stream.scope, {})[entry.catalog_id] = entry

    async def set_removed(self, stream: Stream, entry: Entry, draft: Draft) -> Appended:
        """Keep whether a version is out of use once its event stands."""
        appended = await self._ledger.append(stream, [draft])
        self._kept[stream.scope][entry.catalog_id] = entry
        return appended
