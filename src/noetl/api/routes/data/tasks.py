"""Tasks of dataset jobs for people: listed, shown with their attempts and logs, tried again, cancelled."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import orjson
from msgspec import Meta
from starlette.responses import Response

from noetl.api.endpoint import READERS, WRITERS, Call, Routes
from noetl.api.problems import TooLarge
from noetl.api.wire import Body, Id, Name, Text, View, combined
from noetl.errors import NotFound
from noetl.model.ids import parse_id
from noetl.model.task import TaskStatus
from noetl.pipelines.tasks.actions import AttemptStory, TasksByHand
from noetl.pipelines.tasks.rows import PublicTask

routes = Routes("tasks")


class TasksQuery(Body, frozen=True, kw_only=True):
    """Which tasks to list."""

    cursor: Id | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    dag: Name | None = None
    job: Name | None = None
    status: TaskStatus | None = None
    execution_id: Id | None = None


class LogQuery(Body, frozen=True, kw_only=True):
    """Which attempt's log; the last one that left any unless told."""

    attempt: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class TaskCancelRequest(Body, frozen=True, kw_only=True):
    """Why to stop."""

    reason: Annotated[Text, Meta(min_length=1)] = "cancelled by request"


class TaskView(PublicTask, frozen=True, kw_only=True):
    """A task as it stands. `open` is true while it waits, runs, or will be tried again."""

    open: bool


class TaskPage(View, frozen=True, kw_only=True):
    """Tasks, the newest first; `next_cursor` is null on the last page."""

    tasks: list[TaskView]
    next_cursor: str | None


class TaskDetail(TaskView, frozen=True, kw_only=True):
    """A task with what it reads and its attempts."""

    inputs: list[dict[str, Any]]
    attempts: list[AttemptStory]


@routes.get("/api/tasks", READERS)
async def list_tasks(call: Call, query: TasksQuery) -> TaskPage:
    """List tasks, the newest first."""
    rows = await _by_hand(call).listed(
        call.scope,
        dag=query.dag,
        job=query.job,
        status=query.status,
        execution_id=None if query.execution_id is None else parse_id(query.execution_id),
        before=None if query.cursor is None else parse_id(query.cursor),
        limit=query.limit,
    )
    return TaskPage(
        tasks=[combined(TaskView, row) for row in rows],
        next_cursor=str(rows[-1].created_event_id) if len(rows) == query.limit else None,
    )


@routes.get("/api/tasks/{task_id}", READERS)
async def get_task(call: Call, task_id: UUID) -> TaskDetail:
    """Return a task with what it reads and its attempts."""
    task = await _by_hand(call).show(call.scope, str(task_id))
    inputs = task.inputs
    if task.inputs_ref is not None and inputs:
        parts = orjson.loads(await call.services.payloads.fetch(call.scope, task.inputs_ref))
        inputs = [{**entry, "parts": parts[entry["alias"]]} for entry in inputs]
    attempts = await _by_hand(call).history(call.scope, task.task_id)
    return combined(TaskDetail, task, inputs=inputs, attempts=attempts)


@routes.get("/api/tasks/{task_id}/logs", READERS, media_type="text/plain")
async def get_task_log(call: Call, task_id: UUID, query: LogQuery) -> Any:
    """Return what an attempt left as its log: prints of the job, Spark's own lines, tracebacks."""
    task = await _by_hand(call).show(call.scope, str(task_id))
    attempts = await _by_hand(call).history(call.scope, task.task_id)
    left = [one for one in attempts if one.logs is not None and query.attempt in (None, one.attempt)]
    if not left or left[-1].logs is None:
        which = "no attempt" if query.attempt is None else f"attempt {query.attempt} did not happen or is silent: none"
        raise NotFound(f"{which} at task {task_id} left a log", hint=f"GET /api/tasks/{task_id} tells of each")
    ref, most = left[-1].logs, call.services.max_payload_bytes
    if ref.bytes > most:
        raise TooLarge(f"the log has {ref.bytes} bytes, and this server gives {most} at once")
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "no-store"}
    return Response(await call.services.payloads.fetch(call.scope, ref), 200, headers, "text/plain")


@routes.post("/api/tasks/{task_id}/retry", WRITERS)
async def retry_task(call: Call, task_id: UUID) -> TaskView:
    """Let a task be tried again that failed for good or was cancelled."""
    await _by_hand(call).retry(call.scope, str(task_id), by=call.caller.name)
    return await _view(call, task_id)


@routes.post("/api/tasks/{task_id}/cancel", WRITERS, repeatable=True)
async def cancel_task(call: Call, task_id: UUID, body: TaskCancelRequest | None = None) -> TaskView:
    """End a task that waits; one that runs is asked to stop, which its worker hears with its next heartbeat."""
    reason = (body or TaskCancelRequest()).reason
    await _by_hand(call).cancel(call.scope, str(task_id), reason=reason, by=call.caller.name)
    return await _view(call, task_id)


async def _view(call: Call, task_id: UUID) -> TaskView:
    return combined(TaskView, await _by_hand(call).show(call.scope, str(task_id)))


def _by_hand(call: Call) -> TasksByHand:
    return call.pipelines().engine.by_hand
