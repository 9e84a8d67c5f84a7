"""Reading DAGs: a name goes in, its versions, jobs, files and how far they are come out. Nothing is written."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.bundles import Bundle, open_bundle
from noetl.pipelines.catalog.dags.rows import DagVersion, JobRow, jobs_of, versions_of
from noetl.pipelines.catalog.dags.status import DagStatus, status_of
from noetl.pipelines.catalog.dags.switches import readers_of

_KEPT: Final = 32
"""Bundles kept in memory."""
_NAMES = "SELECT DISTINCT dag FROM noetl.dag_version ORDER BY 1"
_DAG_OF = "SELECT dag FROM noetl.dag_version WHERE dag_version_id::text = $1"


class DagReader:
    """The DAGs of all organizations, each seen only within its own."""

    def __init__(self, database: Database, payloads: PayloadStore) -> None:
        self._database = database
        self._payloads = payloads
        self._bundles: OrderedDict[tuple[Scope, str], Bundle] = OrderedDict()

    async def names(self, scope: Scope) -> list[str]:
        """Return the names of all DAGs."""
        async with self._database.transaction(scope) as connection:
            return [row["dag"] for row in await connection.fetch(_NAMES)]

    async def versions(self, scope: Scope, dag: str) -> list[DagVersion]:
        """Return all versions of a DAG, the newest first."""
        async with self._database.transaction(scope) as connection:
            return await versions_of(connection, dag)

    async def version(self, scope: Scope, dag: str, dag_version_id: str) -> DagVersion:
        """Return a version by its id, or by the beginning of it if that is enough to tell it from the others."""
        versions = await self.versions(scope, dag)
        found = [version for version in versions if version.dag_version_id.startswith(dag_version_id)]
        if len(found) == 1 and dag_version_id:
            return found[0]
        if not versions:
            raise NotFound(f"there is no DAG {dag}", hint="`noetl dag list` shows what is deployed")
        raise NotFound(
            f"DAG {dag} has {'no version' if not found else 'several versions'} {dag_version_id}",
            hint=f"it has {', '.join(version.dag_version_id for version in versions[:10])}",
        )

    async def current(self, scope: Scope, dag: str) -> DagVersion | None:
        """Return the version that serves readers."""
        return next((version for version in await self.versions(scope, dag) if version.status == "active"), None)

    async def jobs(self, scope: Scope, dag_version_id: str) -> list[JobRow]:
        """Return the jobs of a version by name."""
        async with self._database.transaction(scope) as connection:
            return await jobs_of(connection, dag_version_id)

    async def status(self, scope: Scope, dag: str, dag_version_id: str | None = None) -> DagStatus:
        """Say how far a version is, job by job: the newest that is under way, else the current one, unless told."""
        versions = await self.versions(scope, dag)
        if dag_version_id is not None or not versions:
            chosen = await self.version(scope, dag, dag_version_id or "")
        else:
            order = ("building", "ready", "active")
            ranked = [version for status in order for version in versions if version.status == status]
            chosen = (ranked or versions)[0]
        async with self._database.transaction(scope) as connection:
            return await status_of(connection, chosen, versions)

    async def jobs_reading(self, scope: Scope, dataset_uuid: str, dataset_version: str) -> list[JobRow]:
        """Return the jobs that a change in a generation of a dataset may start.

        Those of current versions if it is the generation that is served, and those that a version under way builds on
        it; one for each generation.
        """
        async with self._database.transaction(scope) as connection:
            return await readers_of(connection, dataset_uuid, dataset_version)

    async def load_bundle(self, scope: Scope, dag_version_id: str) -> Bundle:
        """Return the files of a version, from memory when they were used lately."""
        key = (scope, dag_version_id)
        found = self._bundles.get(key)
        if found is None:
            async with self._database.transaction(scope) as connection:
                dag = await connection.fetchval(_DAG_OF, dag_version_id)
            version = await self.version(scope, dag or "", dag_version_id)
            data = await self._payloads.fetch(scope, version.bundle_ref)
            # Reading a DAG takes a while, in which others must be served.
            found = await asyncio.to_thread(open_bundle, data)
            self._bundles[key] = found
            while len(self._bundles) > _KEPT:
                self._bundles.popitem(last=False)
        self._bundles.move_to_end(key)
        return found
