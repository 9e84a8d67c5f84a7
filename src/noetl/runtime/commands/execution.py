"""What commands for executions open, and which execution is meant: what a person writes goes in, its id comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.errors import InputError, NoetlError, NotFound
from noetl.runtime.commands.selection import LAST

if TYPE_CHECKING:
    from noetl.engine.dispatch.engine import Engine
    from noetl.engine.dispatch.loops.progress import StageSoFar
    from noetl.engine.plan.planned import Plan
    from noetl.model.stream import Scope
    from noetl.runtime.wiring import Runtime

# The newest execution by id that no other one started; ids below the bound are the organizations' own and name no run.
# Deploys, emissions and commits of the event lake are executions as well, but have no commands.
_LAST = """
SELECT s.execution_id FROM noetl.stream AS s
WHERE s.execution_id >= $1 AND s.version > 0 AND s.stream_id = 'execution/' || s.execution_id::text
AND NOT EXISTS (
    SELECT FROM noetl.event AS e WHERE e.execution_id = s.execution_id AND e.stream_id = s.stream_id
    AND e.stream_version = 1 AND e.event_type = 'execution.requested' AND e.parent_execution_id IS NOT NULL)
AND (NOT $2::boolean OR EXISTS (
    SELECT FROM noetl.event AS e WHERE e.execution_id = s.execution_id AND e.event_type = 'command.issued'))
ORDER BY s.execution_id DESC LIMIT 1
"""


@asynccontextmanager
async def deciding(role: str) -> AsyncIterator[tuple[Runtime, Engine]]:
    """Give an engine on the configured database for the time of the block."""
    from noetl.runtime.assembly.engine import open_engine
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime, open_engine(runtime, role) as engine:
        yield runtime, engine


async def find_execution(runtime: Runtime, text: str, *, with_commands: bool = False) -> tuple[Scope, int]:
    """Read an execution's id, its locator, or `last`; whether it exists is seen when it is read, except for `last`.

    `last` is the newest execution that was asked for, not one that it started in turn.
    `with_commands` has `last` mean the newest run of a playbook, whatever DAGs did since.
    """
    from noetl.model.ids import ROOT_ID_LIMIT, parse_id
    from noetl.model.locator import SCHEME, parse_locator
    from noetl.model.stream import Scope

    if text == LAST:
        async with runtime.database.transaction(runtime.scope) as connection:
            found = await connection.fetchval(_LAST, ROOT_ID_LIMIT, with_commands)
        if found is None:
            raise NotFound(f"there is no execution in {runtime.scope.tenant_id}/{runtime.scope.organization_id} yet")
        return runtime.scope, int(found)
    if text.startswith(SCHEME):
        locator = parse_locator(text)
        if locator.kind != "execution" or locator.organization is None or len(locator.path) != 1:
            raise InputError(f"{text} is not the locator of an execution", hint="it ends in /execution/<id>")
        return Scope(locator.tenant, locator.organization), parse_id(locator.path[0])
    try:
        return runtime.scope, parse_id(text)
    except InputError:
        raise InputError(
            f"{text[:120]!r} is no execution", hint="give its id, its noetl:// locator, or last for the newest one"
        ) from None


async def must_exist(runtime: Runtime, scope: Scope, execution_id: int) -> None:
    """Refuse an execution that has no events."""
    async for _ in runtime.history.execution_pages(scope, execution_id):
        return
    raise NotFound(
        f"there is no execution {execution_id} in {scope.tenant_id}/{scope.organization_id}",
        hint="`noetl events last` shows the newest one",
    )


async def newest_frame(runtime: Runtime, scope: Scope, execution_id: int) -> int:
    """Return the frame of an execution that was made last."""
    newest = 0
    async for page in runtime.history.execution_pages(scope, execution_id):
        newest = max([newest, *(event.frame_id for event in page if event.frame_id is not None)])
    if not newest:
        raise NotFound(f"execution {execution_id} has no frame")
    return newest


async def plan_of(runtime: Runtime, scope: Scope, execution_id: int) -> Plan | None:
    """Return the plan of the playbook version that an execution runs; None if there is none, or it cannot be read."""
    from noetl.model.stream import execution_stream
    from noetl.runtime.assembly.engine import catalog_of

    async for event in runtime.ledger.read(execution_stream(scope, execution_id)):
        if event.catalog_id is None:
            return None
        try:
            return await catalog_of(runtime, "why").plan(scope, event.catalog_id)
        except NoetlError:
            return None
    return None


async def loops_so_far(runtime: Runtime, scope: Scope, execution_id: int) -> list[StageSoFar]:
    """Return how far the loops of an execution are, as quick hints tell it where there are any."""
    from noetl.engine.dispatch.loops.progress import LoopsSoFar
    from noetl.engine.dispatch.open_work.postgres import PostgresOpenWork
    from noetl.runtime.streams.hints import open_hints

    async with open_hints(runtime.settings) as hints:
        return await LoopsSoFar(PostgresOpenWork(runtime.database), hints).of(scope, execution_id)
