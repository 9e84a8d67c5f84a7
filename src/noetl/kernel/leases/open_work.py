"""Leases on commands and frames: what waits, what is still held, what was lost.

They are claimed and ended by transitions, which the ledger decides; here is what those who write transitions ask first.
Rows are read by column name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from noetl.kernel.leases import operations, statements
from noetl.kernel.leases.kinds import COMMAND, FRAME, Kind
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Fence
from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.model.lease import Proof
from noetl.model.stream import Scope

# The rule of `noetl.engine.plan.locality.may_take`: after how long work opens depends on how far it is.
_PENDING: Final = statements.candidates(
    COMMAND,
    "execution_id, command_id, attempt, issued_event_id, lease_seconds, loop_id",
    """(near IS NULL OR available_at <= now() - make_interval(secs => CASE
      WHEN near ->> 'node' = $2 THEN $5::double precision
      WHEN near ->> 'region' IS DISTINCT FROM $4 THEN $8::double precision
      WHEN near ->> 'zone' IS DISTINCT FROM $3 THEN $7::double precision
      ELSE $6::double precision END))
  AND ($9 OR loop_id IS NULL)""",
)
# A row that waits names no worker: who held it last stands in its stream, which has few events and an index.
_HELD_BY: Final = f"""(
    SELECT e.meta ->> 'worker' FROM noetl.known_event AS e
    WHERE e.stream_id = 'execution/' || frame.execution_id || '/frame/' || frame.frame_id
      AND e.execution_id = frame.execution_id AND e.event_type IN ({sql_texts(types_of_attempts("begun", at="frame"))})
    ORDER BY e.stream_version DESC LIMIT 1) AS held_by"""  # noqa: S608
_FREE_FRAMES: Final = statements.candidates(
    FRAME,
    f"frame_id, frame_index, first_index, row_count, attempt, shard_id, input_ref, checkpoint, {_HELD_BY}",
    "stage_id = $1 AND execution_id = $2",
    limit="100",
    lock=False,
)
_STAGE: Final = "JOIN noetl.stage AS s USING (tenant_id, organization_id, execution_id, stage_id)"
_LOST_COLUMNS: Final = f"""
f.tenant_id, f.organization_id, f.execution_id, f.frame_id, f.stage_id, f.loop_id, f.shard_id, f.attempt,
f.{FRAME.token}::text AS lease_token, f.worker, f.row_count, f.frame_index, s.step_name,
coalesce((s.frame_policy ->> 'max_attempts')::integer, 3) AS max_attempts
"""
_EXPIRED_COMMANDS: Final = statements.expired(
    COMMAND,
    f"tenant_id, organization_id, execution_id, command_id, step_name, attempt, {COMMAND.token}::text AS lease_token,"
    " worker, issued_event_id, stage_id, loop_id",
)
_EXPIRED_FRAMES: Final = statements.expired(FRAME, _LOST_COLUMNS, "f", _STAGE)
_FRAMES_OF: Final = f"""
SELECT {_LOST_COLUMNS}, {FRAME.ran_out("f")} AS has_expired FROM noetl.frame AS f {_STAGE}
WHERE f.execution_id = $1 AND f.command_id = $2 AND {FRAME.held("f")}
"""  # noqa: S608


class Row(Protocol):
    """A row of open work."""

    def __getitem__(self, column: str, /) -> Any:
        """Return the value of a column."""
        ...


class Nearness(NamedTuple):
    """Where a worker is, and after how many seconds it may take work that is near others."""

    node: str | None
    zone: str | None
    region: str | None
    opens: Sequence[float]
    """Seconds for work on its node, in its zone, in its region, and in another region."""


class OpenWorkLeases:
    """The leases on commands and frames in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pending(self, scope: Scope, want: int, near: Nearness, *, loops: bool) -> list[Row]:
        """Return commands that a worker may claim now, the oldest first; slots of loops only if it wants them."""
        where = (near.node, near.zone, near.region, *near.opens)
        async with self._database.transaction(scope) as connection:
            return list(await connection.fetch(_PENDING, want, *where, loops))

    async def free_frames(self, scope: Scope, execution_id: int, stage_id: int) -> list[Row]:
        """Return the first frames of a stage that were given up and wait for another holder."""
        async with self._database.transaction(scope) as connection:
            return list(await connection.fetch(_FREE_FRAMES, stage_id, execution_id))

    async def renew(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Make leases last longer, and return those that are still held."""
        async with self._database.transaction(scope) as connection:
            return (await operations.renew(connection, kind, proofs)).keys()

    async def holds(self, scope: Scope, fence: Fence) -> bool:
        """Tell whether the lease of a fence lasts, to know which of several was lost."""
        kind, name = (COMMAND, fence.id) if fence.table == "command" else (FRAME, int(fence.id))
        assert fence.token is not None
        proof = Proof((fence.execution_id, name), fence.attempt, fence.token)
        async with self._database.transaction(scope) as connection:
            return bool(await operations.holds(connection, kind, [proof]))

    async def gone(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Return the leases that are somebody else's, or whose work has ended."""
        async with self._database.transaction(scope) as connection:
            return await operations.gone(connection, kind, proofs)

    async def frames_of(self, scope: Scope, execution_id: int, command_id: str) -> list[Row]:
        """Return the frames that a slot holds or held until it was lost; `has_expired` tells which."""
        async with self._database.transaction(scope) as connection:
            return list(await connection.fetch(_FRAMES_OF, execution_id, command_id))

    async def expired_commands(self) -> list[Row]:
        """Return commands of all organizations whose holders were lost."""
        return await self._lost(_EXPIRED_COMMANDS)

    async def expired_frames(self) -> list[Row]:
        """Return frames of all organizations whose holders were lost."""
        return await self._lost(_EXPIRED_FRAMES)

    async def _lost(self, query: str) -> list[Row]:
        async with self._database.transaction(None, "reaper") as connection:
            return list(await connection.fetch(query))
