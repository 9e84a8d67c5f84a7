"""Schedules of DAGs' cron sources: they follow from the version that serves readers, and change when another one does."""

from __future__ import annotations

import logging
from typing import Any, Final

import orjson

from noetl.errors import InputError
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.schedule.schedules import Schedules
from noetl.services.schedule.spec import Definition, Named, Spec

_log = logging.getLogger(__name__)

_PRINT: Final = """
SELECT count(*) AS dags, max(updated_at) AS newest, bit_xor(hashtextextended(dag || dag_version_id::text, 0)) AS versions
FROM noetl.dag_current_version
"""
_WANTED: Final = """
SELECT c.dag, j.name AS job, (j.definition -> 'source')::text AS source
FROM noetl.dag_current_version AS c JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id)
WHERE j.activation = 'source' AND j.definition -> 'source' ->> 'kind' = 'cron' ORDER BY c.dag, j.name
"""
_KNOWN: Final = "SELECT name FROM noetl.schedule WHERE kind = 'source' AND removed_at IS NULL"
_SCOPES: Final = """
SELECT tenant_id, organization_id FROM noetl.dag_current_version UNION
SELECT tenant_id, organization_id FROM noetl.schedule WHERE kind = 'source' AND removed_at IS NULL
"""
_SCOPE_KIND: Final = "dag"


class DagSources:
    """Keeps the schedules of all organizations' cron sources."""

    def __init__(self, database: Database, schedules: Schedules) -> None:
        self._database = database
        self._schedules = schedules
        self._seen: tuple[Any, ...] | None = None

    async def sync_changed(self) -> None:
        """Look whether another version of any DAG came to serve since the last look; then make the schedules right."""
        async with self._database.transaction(None, "reaper") as connection:
            row: Any = await connection.fetchrow(_PRINT)
            seen = tuple(row)
            if seen == self._seen:
                return
            scopes = [Scope(row["tenant_id"], row["organization_id"]) for row in await connection.fetch(_SCOPES)]
        for scope in scopes:
            await self.sync(scope)
        self._seen = seen

    async def sync(self, scope: Scope) -> None:
        """Make an organization's schedules of cron sources what its current versions say."""
        async with self._database.transaction(scope) as connection:
            wanted = [_definition(row) for row in await connection.fetch(_WANTED)]
            known = {row["name"] for row in await connection.fetch(_KNOWN)}
        for definition in wanted:
            try:
                await self._schedules.put(scope, definition, by=f"dag/{definition.target['dag']}")
            except InputError as problem:
                # One that cannot be kept must not keep the others from being right.
                _log.warning("the source %s is not scheduled: %s", definition.named.name, problem.message)
        for name in sorted(known - {one.named.name for one in wanted}):
            await self._schedules.remove(scope, name, by="dag")


def _definition(row: Any) -> Definition:
    source = orjson.loads(row["source"])
    return Definition(
        named=Named(name=f"{row['dag']}.{row['job']}", scope_kind=_SCOPE_KIND, scope_id=row["dag"]),
        kind="source",
        target={"dag": row["dag"], "job": row["job"]},
        spec=Spec(
            expression=source["schedule"],
            timezone=source.get("timezone", "UTC"),
            mode=source.get("catch_up", "latest_only"),
        ),
    )
