"""Which task is meant: what a person writes goes in, a task comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.errors import InputError, NotFound
from noetl.runtime.commands.choosing import LAST

if TYPE_CHECKING:
    from noetl.dispatch.tasks.rows import TaskRow
    from noetl.pipelines.pipelines import Pipelines
    from noetl.runtime.wiring import Runtime

_BEGINNING = """
SELECT task_id::text AS task_id FROM noetl.task WHERE starts_with(task_id::text, $1) ORDER BY created_event_id DESC LIMIT 5
"""


async def find_task(runtime: Runtime, pipelines: Pipelines, text: str) -> TaskRow:
    """Return a task by its id, by the beginning of it if only one begins so, or the newest for `last`."""
    by_hand = pipelines.engine.by_hand
    if text == LAST:
        newest = await by_hand.listed(runtime.scope, limit=1)
        if not newest:
            raise NotFound("there is no task yet", hint="`noetl dag run FILE` makes some")
        return newest[0]
    async with runtime.database.transaction(runtime.scope) as connection:
        found = [row["task_id"] for row in await connection.fetch(_BEGINNING, text.strip().lower())]
    if not text.strip() or not found:
        raise NotFound(f"there is no task {text[:120]!r}", hint="`noetl tasks list` shows those there are")
    if len(found) > 1:
        raise InputError(f"several tasks begin with {text}", hint=f"{', '.join(found)}: write more of it")
    return await by_hand.show(runtime.scope, found[0])
