"""Which of several things a person means: text goes in, one of the tasks or other things there are comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from noetl.errors import InputError, NotFound

if TYPE_CHECKING:
    from noetl.pipelines.pipelines import Pipelines
    from noetl.pipelines.tasks.rows import TaskRow
    from noetl.runtime.wiring import Runtime


T = TypeVar("T")
LAST = "last"
"""Stands for the newest wherever a command takes an id."""


def chosen(newest_first: Sequence[T], text: str, id_of: Callable[[T], str], what: str, hint: str) -> T:
    """Return the newest for `last`, else the one whose id is this or alone begins so; `what` is what they are called."""
    if text == LAST:
        found = newest_first[:1]
    else:
        wanted = text.strip().lower()
        found = [one for one in newest_first if wanted and id_of(one).startswith(wanted)]
    if not found:
        raise NotFound(f"there is no {what} yet" if text == LAST else f"no {what} begins with {text[:120]}", hint=hint)
    if len(found) > 1:
        raise InputError(f"{text} begins the id of more than one {what}", hint=", ".join(map(id_of, found[:5])))
    return found[0]


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
