"""Recorded facts in PostgreSQL, found by the indexes of the ledger."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

from noetl.engine.dispatch.facts.port import FrameEnd, FrameFailure, IssuedCommand
from noetl.kernel.ledger.payload_references import payload_at
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_ISSUED: Final = """
SELECT meta, context, fields_ref FROM noetl.known_event
WHERE execution_id = $1 AND command_id = $2 AND event_type = 'command.issued'
"""
# The end of a playbook's run is the last event of its stream, a request the first: the others, however many, are not looked
# at. The run of a DAG is short, and something may follow its end.
_TAKES: Final = """
SELECT parent.event_type FROM noetl.stream AS head CROSS JOIN LATERAL (
    SELECT e.meta FROM noetl.known_event AS e
    WHERE e.execution_id = $1 AND e.stream_id = head.stream_id AND e.stream_version = 1 LIMIT 1
) AS asked CROSS JOIN LATERAL (
    SELECT e.meta FROM noetl.known_event AS e
    WHERE e.execution_id = $2 AND e.stream_id = 'execution/' || $2::bigint::text AND e.stream_version = 1 LIMIT 1
) AS own CROSS JOIN LATERAL (
    (SELECT e.event_type, e.meta FROM noetl.known_event AS e
     WHERE e.execution_id = $1 AND e.stream_id = head.stream_id AND e.stream_version = head.version LIMIT 1)
    UNION ALL
    SELECT e.event_type, e.meta FROM noetl.known_event AS e
    WHERE asked.meta ->> 'playbook_digest' IS NULL AND e.execution_id = $1 AND e.stream_id = head.stream_id
) AS parent
WHERE head.stream_id = 'execution/' || $1::bigint::text AND (
    parent.event_type = 'execution.cancelled' AND parent.meta ->> 'cascade' IS NULL
    OR parent.event_type IN ('execution.failed', 'playbook.failed') AND own.meta ->> 'detached' IS NULL)
LIMIT 1
"""
_BEGUN: Final = sql_texts(types_of_attempts("begun", at="frame"))
_ENDED: Final = sql_texts(types_of_attempts("completed", "failed", at="frame"))
_FAILED: Final = sql_texts(types_of_attempts("failed", at="frame"))
_FRAMES: Final = f"""
FROM noetl.known_event AS e LEFT JOIN noetl.known_event AS d ON d.execution_id = e.execution_id AND d.loop_id = e.loop_id
    AND d.frame_id = e.frame_id AND d.event_type IN ({_BEGUN}) AND d.stream_version = 1
WHERE e.execution_id = $1 AND e.loop_id = $2
"""
_FRAME_ENDS: Final = f"""
SELECT e.frame_id, coalesce(e.current_index, d.current_index) AS first_index, e.payload_ref,
       (e.meta ->> 'row_count')::integer AS row_count,
       CASE WHEN e.payload_ref IS NOT NULL AND e.meta ->> 'attempt' = '1' THEN d.meta ->> 'worker' END AS worker
{_FRAMES}
  AND e.event_type IN ({_ENDED})
ORDER BY first_index, e.frame_id
"""
_FIRST_FAILURE: Final = f"""
SELECT e.frame_id, coalesce(e.current_index, d.current_index) AS first_index,
       (e.meta ->> 'row_count')::integer AS row_count, e.result, e.error
{_FRAMES}
  AND (e.event_type IN ({_FAILED})
    OR (e.event_type = 'frame.committed' AND e.meta ->> 'failed_count' IS NOT NULL))
ORDER BY first_index, e.frame_id LIMIT 1
"""
_LOSSES: Final = f"""
-- Those that wait come after all that are in the ledger, and have places of their own.
WITH known AS NOT MATERIALIZED (
    SELECT false AS waits, position, execution_id, stream_id, loop_id, command_id, event_type FROM noetl.event
    UNION ALL
    SELECT true, position, execution_id, stream_id, loop_id, command_id, event_type FROM noetl.pending_event
), progress AS (
    SELECT waits, position FROM known
    WHERE execution_id = $1 AND loop_id = $2 AND command_id = $3
      AND event_type IN ({_ENDED})
    ORDER BY waits DESC, position DESC LIMIT 1
)
SELECT count(*) FROM known AS lost LEFT JOIN progress ON true
WHERE lost.execution_id = $1 AND lost.stream_id = 'execution/' || $1::bigint || '/command/' || $4::bigint
  AND lost.event_type IN ({sql_texts(types_of_attempts("abandoned", "attempt_failed", at="command"))})
  AND (progress.position IS NULL OR (lost.waits, lost.position) > (progress.waits, progress.position))
"""  # noqa: S608 - ours
_OF_KEY: Final = "SELECT execution_id FROM noetl.idempotency_key WHERE key = $1 AND expires_at > now()"


class PostgresFacts:
    """See `Facts` for the promises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def issued(self, scope: Scope, execution_id: int, command_id: str) -> IssuedCommand | None:
        """Return what a command was issued with."""
        row = await self._first(scope, _ISSUED, execution_id, command_id)
        if row is None:
            return None
        return IssuedCommand(_json(row["meta"]), _json(row["context"]), _reference(row["fields_ref"]))

    async def taking_along(self, scope: Scope, parent_id: int, child_id: int) -> str | None:
        """Return the event by which an ended parent takes a child along."""
        row = await self._first(scope, _TAKES, parent_id, child_id)
        return None if row is None else row["event_type"]

    async def frame_ends(self, scope: Scope, execution_id: int, loop_id: int) -> list[FrameEnd]:
        """Return how the frames of a loop ended."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_FRAME_ENDS, execution_id, loop_id)
        return [FrameEnd(**{**row, "payload_ref": _reference(row["payload_ref"])}) for row in rows]

    async def first_failure(self, scope: Scope, execution_id: int, loop_id: int) -> FrameFailure | None:
        """Return the first frame of a loop that failed or of which rows did."""
        row = await self._first(scope, _FIRST_FAILURE, execution_id, loop_id)
        return None if row is None else FrameFailure(**{**row, "result": _json(row["result"])})

    async def losses(
        self, scope: Scope, execution_id: int, command_id: str, issued_event_id: int, loop_id: int | None
    ) -> int:
        """Return how many attempts came to nothing since the last frame."""
        row = await self._first(scope, _LOSSES, execution_id, loop_id, command_id, issued_event_id)
        return int(row["count"])

    async def execution_of(self, scope: Scope, idempotency_key: str) -> int | None:
        """Return the execution of the event that a key was first used for."""
        row = await self._first(scope, _OF_KEY, idempotency_key)
        return None if row is None else row["execution_id"]

    async def payload_at(self, scope: Scope, locator: str) -> PayloadRef:
        """Return the reference a locator stands for."""
        return await payload_at(self._database, scope, locator)

    async def _first(self, scope: Scope, query: str, *values: Any) -> Any:
        async with self._database.transaction(scope) as connection:
            return await connection.fetchrow(query, *values)


def _json(text: str | None) -> dict[str, Any]:
    return {} if text is None else dict(orjson.loads(text))


def _reference(text: str | None) -> PayloadRef | None:
    return None if text is None else msgspec.convert(orjson.loads(text), PayloadRef)
