"""Keeps sources running: every always-on job of a version that serves has one live turn, and the next when it has ended.

Any number of keepers may run at once: a turn is named by its number, so that one of them begins it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from noetl.engine.dispatch.polling import Repeating
from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.pipelines.sources.turns import Turns
from noetl.pipelines.tasks.engine import TaskEngine

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often a keeper looks."""
_AT_ONCE: Final = 8
_KEPT: Final = 10_000

_SERVING: Final = (
    "SELECT tenant_id, organization_id, dag_version_id::text FROM noetl.dag_version WHERE status = 'active'"
)
_ALWAYS_ON: Final = """
SELECT j.dag_version_id::text AS dag_version_id, j.job_id::text AS job_id FROM noetl.job AS j
WHERE j.dag_version_id = ANY ($1::uuid[]) AND j.activation = 'source'
  AND j.definition -> 'source' ->> 'kind' = 'always_on' ORDER BY j.name
"""

Source = tuple[Scope, str]
"""Whose it is, and its job."""


class SourceKeeper:
    """The keeper of one process; it looks at all organizations and acts within each."""

    def __init__(self, database: Database, engine: TaskEngine, *, every_seconds: float = LOOK_SECONDS) -> None:
        self._database = database
        self._engine = engine
        self._turns = Turns(database, engine)
        self._every = every_seconds
        self._jobs: dict[str, tuple[str, ...]] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._repeating = Repeating("the keeper of sources", self.look, every_seconds=every_seconds)

    def start(self) -> None:
        """Look again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Begin no more turns; those under way are their workers' to end."""
        await self._repeating.stop()

    async def look(self) -> float:
        """Look once at every source that is kept running; return how long to wait before the next look."""
        waits = await asyncio.gather(*map(self._keep, await self._sources()))
        return max(0.01, min([self._every, *(wait for wait in waits if wait is not None)]))

    async def _keep(self, source: Source) -> float | None:
        scope, job_id = source
        try:
            async with self._gate:
                return await self._turns.keep(scope, await self._engine.jobs.get(scope, job_id))
        except NoetlError as problem:
            _log.warning("source %s could not be kept running: %s", job_id, problem.message)
            return None

    async def _sources(self) -> list[Source]:
        async with self._database.transaction(None, "reaper") as connection:
            serving = [(Scope(row[0], row[1]), row[2]) for row in await connection.fetch(_SERVING)]
            unknown = [version for _, version in serving if version not in self._jobs]
            if unknown:
                if len(self._jobs) > _KEPT:
                    self._jobs.clear()
                # The jobs of a version never change.
                found: dict[str, list[str]] = {version: [] for version in unknown}
                for row in await connection.fetch(_ALWAYS_ON, unknown):
                    found[row["dag_version_id"]].append(row["job_id"])
                self._jobs |= {version: tuple(jobs) for version, jobs in found.items()}
            return [(scope, job) for scope, version in serving for job in self._jobs.get(version, ())]
