"""What is sent to webhook sources: the job behind a path is found, what was sent is kept, and its run is started once."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from noetl.errors import KeyReused, PayloadCollected
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.jobs import JobFacts

MEDIA_TYPE: Final = "application/json"
_TRIES: Final = 5

_BEHIND: Final = """
SELECT (SELECT j.job_id::text FROM noetl.dag_current_version AS c
        JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id)
        WHERE c.dag = $1 AND j.activation = 'source' AND j.definition -> 'source' ->> 'kind' = 'webhook'
          AND j.definition -> 'source' ->> 'webhook_path' = $2) AS job_id,
       extract(epoch FROM clock_timestamp())::double precision AS now
"""
_SENT: Final = "SELECT inputs_ref ->> 'sha256' FROM noetl.task WHERE execution_id = $1 AND dedupe_key = $2"


class Behind(msgspec.Struct, frozen=True):
    """What is behind a path, if anything, and the database's time."""

    facts: JobFacts | None
    now: float


class Hooks:
    """The webhook sources of one database."""

    def __init__(self, database: Database, payloads: PayloadStore, engine: TaskEngine) -> None:
        self._database = database
        self._payloads = payloads
        self._engine = engine

    async def behind(self, scope: Scope, dag: str, path: str) -> Behind:
        """Return the job of a DAG's current version that takes what is sent to a path."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_BEHIND, dag, path)
        assert row is not None
        facts = None if row["job_id"] is None else await self._engine.jobs.get(scope, row["job_id"])
        return Behind(facts, row["now"])

    async def take(self, scope: Scope, facts: JobFacts, body: bytes, known_by: str | None) -> tuple[int, bool]:
        """Start the run of what was sent; return it, and whether it is new. What comes again is not run again."""
        assert facts.definition.source is not None
        path = facts.definition.source.webhook_path
        name = known_by or uuid.uuid4().hex
        dedupe_key = f"sent:{name}"
        key = None if known_by is None else f"hook/{facts.dag}{path}/{name}"
        for left in reversed(range(_TRIES)):
            ref = await self._payloads.store(scope, body, MEDIA_TYPE)
            try:
                run, new = await self._engine.runs.start_once(
                    scope, facts, dedupe_key, requested_by=f"webhook {path}", key=key, sent=ref
                )
                break
            except PayloadCollected:
                if not left:
                    raise
        if not new:
            async with self._database.transaction(scope) as connection:
                sent = await connection.fetchval(_SENT, run, dedupe_key)
            if sent not in (None, ref.sha256):
                raise KeyReused(
                    f"this delivery was sent before with another body, as execution {run}",
                    hint="give every delivery an id of its own",
                )
        return run, new
