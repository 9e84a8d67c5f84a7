"""Playbooks by path: source text goes in, an immutable numbered version comes out; what is equal is registered once."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from noetl.engine.catalog.plan_cache import Plans
from noetl.engine.plan.planned import Plan
from noetl.errors import NotFound, VersionConflict
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.playbook.builder import catalog_path
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.model.event import Appended, Draft
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope, Stream

YAML = "application/yaml"
_NAMESPACE = uuid.UUID("7a1f6b0e-6f0f-5f57-9c0a-3c1f0f5f2c11")


class CatalogVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One registered version."""

    catalog_id: str
    path: str
    version: int
    kind: str
    digest: str
    registered_at: datetime
    removed: bool


class Entry(CatalogVersion, frozen=True, kw_only=True):
    """One registered version with its source."""

    content: str


class Registered(msgspec.Struct, frozen=True):
    """The answer to a change; `created` is false when the same source stood already."""

    entry: Entry
    created: bool
    stream_version: int
    """The version of the path's stream that has the change."""
    warnings: tuple[str, ...] = ()


class CatalogEntries(Protocol):
    """Where versions are kept, each with its event: both stand, or neither."""

    async def by_id(self, scope: Scope, catalog_id: str) -> Entry | None:
        """Return a version by its catalog id."""
        ...

    async def versions(self, scope: Scope, path: str) -> list[Entry]:
        """Return all versions of a path, oldest first."""
        ...

    async def newest(self, scope: Scope, prefix: str, after: str, limit: int) -> list[Entry]:
        """Return the newest version in use of each path that begins so and comes after another, by path."""
        ...

    async def stream_version(self, stream: Stream) -> int:
        """Return the version of a path's stream; 0 where nothing was registered."""
        ...

    async def add(self, stream: Stream, entry: Entry, draft: Draft, expected_version: int) -> None:
        """Keep a new version; `VersionConflict` if somebody else registered meanwhile."""
        ...

    async def set_removed(self, stream: Stream, entry: Entry, draft: Draft) -> Appended:
        """Keep whether a version is out of use, as the entry says."""
        ...


class Catalog:
    """The playbooks of all organizations, each seen only within its own."""

    def __init__(
        self,
        entries: CatalogEntries,
        payloads: PayloadStore,
        mint: Callable[[], int],
        producer: str,
        plans: Plans | None = None,
    ) -> None:
        self._entries = entries
        self._payloads = payloads
        self._mint = mint
        self._producer = producer
        self.plans = Plans() if plans is None else plans

    async def register(self, scope: Scope, content: str, *, file: str | None = None) -> Registered:
        """Read and check a playbook, and register it under the path it names."""
        checked = await self.plans.evaluating.beside(scope, lambda: CheckedPlaybook(content, file, self.plans.kinds))
        return await self.register_checked(scope, checked)

    async def register_checked(self, scope: Scope, checked: CheckedPlaybook) -> Registered:
        """Register a playbook under the path it names; the same source again gives the version that stands."""
        if checked.kinds != self.plans.kinds:
            raise ValueError("the playbook was checked for other kinds of tasks than this catalog has tools for")
        playbook, warnings = checked.playbook, checked.warnings
        while True:
            # Read before the versions: whoever registers in between makes the append fail, and all is read again.
            known = await self._entries.stream_version(catalog_stream(scope, playbook.path))
            versions = await self.versions(scope, playbook.path)
            for entry in versions:
                if entry.digest == playbook.digest and not entry.removed:
                    await self.plans.keep(scope, entry.catalog_id, checked)
                    return Registered(entry, created=False, stream_version=known, warnings=warnings)
            entry = Entry(
                catalog_id=str(
                    uuid.uuid5(
                        _NAMESPACE, f"{scope.tenant_id}/{scope.organization_id}/{playbook.path}@{len(versions) + 1}"
                    )
                ),
                path=playbook.path,
                version=len(versions) + 1,
                kind="playbook",
                digest=playbook.digest,
                content=checked.text,
                registered_at=datetime.now(UTC),
                removed=False,
            )
            try:
                await self._write(scope, entry, expected_version=known)
            except VersionConflict:
                continue
            await self.plans.keep(scope, entry.catalog_id, checked)
            return Registered(entry, created=True, stream_version=known + 1, warnings=warnings)

    async def set_removed(self, scope: Scope, path: str, version: int, *, removed: bool) -> Registered:
        """Take a version out of use, or back into it."""
        entry = await self.get(scope, path, version, with_removed=True)
        stream = catalog_stream(scope, entry.path)
        if entry.removed == removed:
            return Registered(entry, created=False, stream_version=await self._entries.stream_version(stream))
        kind = "catalog.removed" if removed else "catalog.restored"
        changed = msgspec.structs.replace(entry, removed=removed)
        appended = await self._entries.set_removed(stream, changed, self._draft(scope, stream, kind, entry))
        return Registered(changed, created=False, stream_version=appended.last_version)

    async def get(self, scope: Scope, path: str, version: int | None = None, *, with_removed: bool = False) -> Entry:
        """Return a version by path, the newest one unless told; a catalog id may stand for the path."""
        versions = await self.versions(scope, path)
        usable = [entry for entry in versions if with_removed or not entry.removed]
        if version is not None:
            usable = [entry for entry in usable if entry.version == version]
        if usable:
            return usable[-1]
        if not versions:
            return await self.by_id(scope, path)
        raise NotFound(
            f"the catalog has no version {version or 'in use'} of {path}",
            hint=f"it has {', '.join(str(entry.version) for entry in versions)}",
        )

    async def by_id(self, scope: Scope, catalog_id: str) -> Entry:
        """Return a version by its catalog id."""
        entry = await self._entries.by_id(scope, catalog_id)
        if entry is None:
            raise NotFound(
                f"the catalog has no playbook {catalog_id}", hint="`noetl catalog list` shows what is registered"
            )
        return entry

    async def versions(self, scope: Scope, path: str) -> list[Entry]:
        """Return all versions of a path, oldest first."""
        return await self._entries.versions(scope, catalog_path(path))

    async def newest(self, scope: Scope, prefix: str = "", after: str = "", limit: int = 100) -> list[Entry]:
        """Return the newest version in use of each path, by path, a page at a time."""
        return await self._entries.newest(scope, prefix, after, limit)

    async def plan(self, scope: Scope, catalog_id: str) -> Plan:
        """Return a version ready for deciding and running, from memory when it was used lately."""

        async def text() -> str:
            return (await self.by_id(scope, catalog_id)).content

        return await self.plans.get(scope, catalog_id, text)

    async def _write(self, scope: Scope, entry: Entry, expected_version: int) -> None:
        ref = await self._payloads.store(scope, entry.content.encode(), YAML)
        stream = catalog_stream(scope, entry.path)
        draft = msgspec.structs.replace(
            self._draft(scope, stream, "catalog.registered", entry),
            event_time=entry.registered_at,
            payload_ref=ref,
            meta={"path": entry.path, "version": entry.version, "kind": entry.kind, "digest": entry.digest},
        )
        await self._entries.add(stream, entry, draft, expected_version)

    def _draft(self, scope: Scope, stream: Stream, kind: str, entry: Entry) -> Draft:
        return Draft(
            self._mint(),
            scope.tenant_id,
            scope.organization_id,
            organization_root_id(scope.tenant_id, scope.organization_id),
            stream.stream_id,
            "catalog",
            entry.path,
            kind,
            f"noetl.{kind}",
            1,
            datetime.now(UTC),
            self._producer,
            catalog_id=entry.catalog_id,
            meta={"version": entry.version},
        )


def catalog_stream(scope: Scope, path: str) -> Stream:
    """Return the stream of a path's versions; a path with other letters than a stream may have is named by its digest."""
    stream = scope.stream(f"catalog/{path}")
    if stream.problems():
        stream = scope.stream(f"catalog/sha256/{hashlib.sha256(path.encode()).hexdigest()}")
    return stream
