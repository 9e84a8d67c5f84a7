"""Open work in PostgreSQL: the tables of open work, and `noetl.leases` for whatever is about leases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.dispatch.open_work.port import (
    FrameInHand,
    FreeFrame,
    HeldFrame,
    LostCommand,
    OpenStage,
    PendingCommand,
    SuspendedCommand,
)
from noetl.kernel.leases.kinds import Kind
from noetl.kernel.leases.open_work import Nearness, OpenWorkLeases, Row
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Fence
from noetl.model.lease import Proof
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_STAGE: Final = """
SELECT next_index, frames_minted, frames_open, frames_failed, rows_done, rows_failed, errors, ctx,
       coalesce((frame_policy ->> 'fail_fast')::boolean, false) AND frames_failed > 0 AS has_failed_fast,
       coalesce(frame_policy ->> 'process' = 'frame', false) AS is_one_per_frame,
       coalesce((frame_policy ->> 'max_attempts')::integer, 3) AS max_attempts
FROM noetl.stage WHERE stage_id = $1 AND execution_id = $2
"""
_IN_HAND: Final = """
SELECT s.stage_id, s.loop_id, s.rows_done, s.rows_failed, f.frame_id, f.attempt, f.row_count
FROM noetl.stage AS s JOIN noetl.frame AS f USING (tenant_id, organization_id, execution_id, stage_id)
WHERE s.execution_id = $1 AND f.status = 'LEASED' ORDER BY s.stage_id
"""
_IS_SUSPENDED: Final = """
SELECT EXISTS (SELECT FROM noetl.command WHERE execution_id = $1 AND command_id = $2 AND status = 'SUSPENDED')
"""
_FORGOTTEN: Final = """
SELECT c.tenant_id, c.organization_id, c.execution_id, c.command_id, c.child_execution_id FROM noetl.command AS c
WHERE c.status = 'SUSPENDED' AND c.available_at < clock_timestamp() - make_interval(secs => $1) AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS h WHERE h.tenant_id = c.tenant_id AND h.organization_id = c.organization_id
    AND h.execution_id = c.child_execution_id) LIMIT 200
"""


class PostgresOpenWork:
    """See `OpenWork` for the promises."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._leases = OpenWorkLeases(database)

    async def pending(self, scope: Scope, want: int, near: Nearness, *, loops: bool) -> list[PendingCommand]:
        """Return commands that a worker may claim now."""
        return [PendingCommand(**_named(row)) for row in await self._leases.pending(scope, want, near, loops=loops)]

    async def renew(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Make leases last longer."""
        return await self._leases.renew(scope, kind, proofs)

    async def holds(self, scope: Scope, fence: Fence) -> bool:
        """Tell whether the lease of a fence lasts."""
        return await self._leases.holds(scope, fence)

    async def gone(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Return the leases that are somebody else's, or whose work has ended."""
        return await self._leases.gone(scope, kind, proofs)

    async def free_frames(self, scope: Scope, execution_id: int, stage_id: int) -> list[FreeFrame]:
        """Return the frames of a stage that nobody holds."""
        return [_free_frame(row) for row in await self._leases.free_frames(scope, execution_id, stage_id)]

    async def frames_of(self, scope: Scope, execution_id: int, command_id: str) -> list[HeldFrame]:
        """Return the frames of a slot."""
        return [_frame(row)[1] for row in await self._leases.frames_of(scope, execution_id, command_id)]

    async def frames_in_hand(self, scope: Scope, execution_id: int) -> list[FrameInHand]:
        """Return the frames of an execution that have holders."""
        # One statement: a frame is either in hand or in the sums of its stage, and never counts in both.
        return [FrameInHand(**_named(row)) for row in await self._rows(scope, _IN_HAND, execution_id)]

    async def stage(self, scope: Scope, execution_id: int, stage_id: int) -> OpenStage | None:
        """Return a stage that is not closed."""
        rows = await self._rows(scope, _STAGE, stage_id, execution_id)
        return OpenStage(**{**_named(rows[0]), "ctx": orjson.loads(rows[0]["ctx"])}) if rows else None

    async def is_suspended(self, scope: Scope, execution_id: int, command_id: str) -> bool:
        """Tell whether a command waits for a child execution."""
        return bool((await self._rows(scope, _IS_SUSPENDED, execution_id, command_id))[0]["exists"])

    async def expired_commands(self) -> list[LostCommand]:
        """Return commands whose leases ran out."""
        return [_scoped(LostCommand, row) for row in await self._leases.expired_commands()]

    async def expired_frames(self) -> list[tuple[Scope, HeldFrame]]:
        """Return frames whose leases ran out."""
        return [_frame(row) for row in await self._leases.expired_frames()]

    async def forgotten(self, idle_seconds: float) -> list[SuspendedCommand]:
        """Return commands that wait for a child that is not open."""
        return [_scoped(SuspendedCommand, row) for row in await self._rows(None, _FORGOTTEN, idle_seconds)]

    async def _rows(self, scope: Scope | None, query: str, *values: Any) -> list[Any]:
        async with self._database.transaction(scope, "reaper" if scope is None else "runtime") as connection:
            return list(await connection.fetch(query, *values))


def _named(row: Row) -> dict[str, Any]:
    return dict(row.items())  # type: ignore[attr-defined]


def _free_frame(row: Row) -> FreeFrame:
    kept, checkpoint = row["input_ref"], row["checkpoint"]
    read = {
        "input_ref": None if kept is None else msgspec.json.decode(kept, type=PayloadRef),
        "checkpoint": None if checkpoint is None else orjson.loads(checkpoint),
    }
    return FreeFrame(**{**_named(row), **read})


def _scoped(kind: Any, row: Row) -> Any:
    values = _named(row)
    return kind(scope=Scope(values.pop("tenant_id"), values.pop("organization_id")), **values)


def _frame(row: Row) -> tuple[Scope, HeldFrame]:
    values = _named(row)
    scope = Scope(values.pop("tenant_id"), values.pop("organization_id"))
    return scope, HeldFrame(**values)
