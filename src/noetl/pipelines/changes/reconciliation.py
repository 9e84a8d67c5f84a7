"""What was missed is found: tasks that are wanted and not there are made, and what nobody waits for is closed.

Changes are routed as they come; this looks at everything that stands instead, so that it is right whatever was lost.
Done twice, the second time finds nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.errors import NotFound
from noetl.model.ids import Id64
from noetl.model.stream import Scope
from noetl.pipelines.changes.context import Means
from noetl.pipelines.changes.invalidations import Invalidations

_CURRENT: Final = """
SELECT c.dag, c.dag_version_id::text AS dag_version_id FROM noetl.dag_current_version AS c
WHERE $1::text IS NULL OR c.dag = $1 ORDER BY c.dag
"""
_SCOPES: Final = (
    "SELECT DISTINCT tenant_id, organization_id FROM noetl.dag_version WHERE status = 'active' ORDER BY 1, 2"
)
_JOBS: Final = "SELECT job, partition_key FROM noetl.task WHERE execution_id = $1 ORDER BY job, partition_key"


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """What was missing in a DAG, as job and partition, and the run that makes up for it."""

    dag: str
    dag_version_id: str
    execution_id: Id64 | None
    partitions: tuple[tuple[str, str], ...]


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found."""

    dags: tuple[Missed, ...]
    closed: tuple[Id64, ...]
    """Invalidations whose tasks nobody needs any more."""
    undelivered: int
    """Changes that could not be routed and were given up; `noetl tasks outbox` tells why."""

    @property
    def missed(self) -> int:
        """How many tasks were missing."""
        return sum(len(one.partitions) for one in self.dags)


class Reconciling:
    """Reconciles organizations of one database."""

    def __init__(self, means: Means, invalidations: Invalidations) -> None:
        self._means = means
        self._invalidations = invalidations

    async def reconcile(self, scope: Scope, dag: str | None = None, *, by: str) -> Reconciled:
        """Make the tasks that are wanted and not there in the versions that serve, of one DAG or of all."""
        engine = self._means.engine
        # What is on its way is not missing.
        while await engine.outbox.drain_scope(scope):
            pass
        async with self._means.database.transaction(scope) as connection:
            rows = await connection.fetch(_CURRENT, dag)
        if dag is not None and not rows:
            raise NotFound(f"no version of a DAG {dag} serves readers", hint="`noetl dag list` shows what is deployed")
        found = [await self._one(scope, row["dag"], row["dag_version_id"], by) for row in rows]
        closed = await self._invalidations.close_abandoned(scope, by=by)
        dead = await engine.outbox.list_dead(scope)
        return Reconciled(dags=tuple(found), closed=tuple(closed), undelivered=len(dead))

    async def reconcile_all(self, *, by: str) -> dict[Scope, Reconciled]:
        """Do so in every organization that something serves, one after the other."""
        async with self._means.database.transaction(None, "reaper") as connection:
            scopes = [Scope(row[0], row[1]) for row in await connection.fetch(_SCOPES)]
        return {scope: await self.reconcile(scope, by=by) for scope in scopes}

    async def _one(self, scope: Scope, dag: str, dag_version_id: str, by: str) -> Missed:
        execution_id = await self._means.engine.runs.catch_up(scope, dag, dag_version_id, requested_by=by)
        if execution_id is None:
            return Missed(dag=dag, dag_version_id=dag_version_id, execution_id=None, partitions=())
        async with self._means.database.transaction(scope) as connection:
            rows = await connection.fetch(_JOBS, execution_id)
        return Missed(
            dag=dag,
            dag_version_id=dag_version_id,
            execution_id=execution_id,
            partitions=tuple((row["job"], row["partition_key"]) for row in rows),
        )
