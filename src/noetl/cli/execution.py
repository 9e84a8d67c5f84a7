"""Which execution is meant: what a person writes goes in, an organization and an execution id come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.errors import InputError, NotFound

if TYPE_CHECKING:
    from noetl.model.stream import Scope
    from noetl.runtime.wiring import Runtime

# The newest execution by id that no other one started; ids below the bound are the organizations' own and name no run.
# Deploys, emissions and commits of the event lake are executions as well, but have no commands.
_LAST = """
SELECT s.execution_id FROM noetl.stream AS s WHERE s.execution_id >= $1 AND s.version > 0
AND NOT EXISTS (
    SELECT FROM noetl.event AS e WHERE e.execution_id = s.execution_id AND e.event_type = 'execution.requested'
    AND e.parent_execution_id IS NOT NULL)
AND (NOT $2::boolean OR EXISTS (
    SELECT FROM noetl.event AS e WHERE e.execution_id = s.execution_id AND e.event_type = 'command.issued'))
ORDER BY s.execution_id DESC LIMIT 1
"""


async def find_execution(runtime: Runtime, text: str, *, with_commands: bool = False) -> tuple[Scope, int]:
    """Read an execution's id, its locator, or `last`; whether it exists is seen when it is read, except for `last`.

    `last` is the newest execution that was asked for, not one that it started in turn.
    `with_commands` has `last` mean the newest run of a playbook, whatever DAGs did since.
    """
    from noetl.model.ids import ROOT_ID_LIMIT, parse_id
    from noetl.model.locator import SCHEME, parse_locator
    from noetl.model.stream import Scope

    if text == "last":
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
