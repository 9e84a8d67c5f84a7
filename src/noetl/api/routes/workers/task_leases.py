"""The protocol of those who do tasks, workers and functions alike: claim, fetch, heartbeat, started, complete, fail.

A caller sends the proof of its lease alone. What the task is, is read from its row, so that a caller cannot make it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from noetl.api.endpoint import WORKERS, Answer, Call, Routes
from noetl.api.problems import MEDIA_TYPE, Problem, described
from noetl.api.routes.workers.lease_proofs import TaskProof
from noetl.api.wire import Body, Name, OfWorker, View
from noetl.errors import InputError, LeaseLost, NoetlError
from noetl.model.dataset import Manifest
from noetl.model.task import InputPart, TaskGrant, TaskLease, TaskReport, TaskStatus
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks.local import LocalTasks
from noetl.pipelines.tasks.port import BaseMoved

routes = Routes("tasks")

_SLICE_SECONDS = 1.0
"""How long a claim waits before it looks whether its caller is still there: what is leased to nobody is lost time."""
_LOG_TYPE = "text/plain; charset=utf-8"
_ENDS: dict[str, TaskStatus] = {
    "task.completed": "Completed",
    "task.failed": "Failed",
    "task.attempt_failed": "Failed",
}


_Log = Annotated[str, Meta(max_length=8_000_000)]


class TaskClaimRequest(OfWorker, frozen=True, kw_only=True):
    """Who wants tasks, for which runtimes, how many, and how long it waits for the first."""

    runtimes: Annotated[list[Name], Meta(min_length=1, max_length=20)]
    want: Annotated[int, Meta(ge=1, le=1_000)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0
    like: UUID | None = None
    """The id of a job: only its tasks are given then."""


class TaskClaimAnswer(View, frozen=True, kw_only=True):
    """Tasks of one job, leased to the worker."""

    tasks: list[TaskGrant]


class TaskLeaseRequest(Body, frozen=True, kw_only=True):
    """Which task is meant, by its lease."""

    lease: TaskProof


class TaskGrantAnswer(View, frozen=True, kw_only=True):
    """A task under a lease."""

    task: TaskGrant


class TaskLeasesRequest(Body, frozen=True, kw_only=True):
    """Leases that are to last longer."""

    leases: Annotated[list[TaskProof], Meta(max_length=10_000)]


class TaskLeasesAnswer(View, frozen=True, kw_only=True):
    """Those that are lost: somebody else has the task, or it has ended or been cancelled."""

    lost: list[TaskLease]


class TaskStartedRequest(TaskLeaseRequest, frozen=True, kw_only=True):
    """Where an attempt is about to run."""

    application_id: Name
    job_tag: Name


class TaskEndRequest(TaskLeaseRequest, frozen=True, kw_only=True):
    """What an attempt came to. A log may be given as text by those who do not store payloads themselves."""

    report: TaskReport
    log: _Log | None = None
    operator_state_before: dict[str, Any] | None = None
    """What the operator's state was in the grant, where the report has a new one."""


class TaskEndAnswer(View, frozen=True, kw_only=True):
    """What the task is now."""

    status: TaskStatus


class MovedPart(View, frozen=True, kw_only=True):
    """A partition that another commit reached first, as a grant would say it, and with its manifest."""

    output: int
    part: InputPart
    manifest: Manifest


class MovedProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """Why a commit was refused, with what its rows have to be made unique against before it is tried again."""

    moved: tuple[MovedPart, ...] = ()


@routes.post("/api/tasks/claim", WORKERS)
async def claim_tasks(call: Call, body: TaskClaimRequest) -> TaskClaimAnswer:
    """Lease up to `want` tasks of one job, waiting up to `wait_seconds` for the first."""
    tasks, loop = _tasks(call), asyncio.get_running_loop()
    like = None if body.like is None else str(body.like)
    deadline = loop.time() + body.wait_seconds
    while True:
        left = max(0.0, deadline - loop.time())
        granted = await tasks.claim(body.worker_id, body.runtimes, body.want, min(left, _SLICE_SECONDS), like=like)
        over = left <= _SLICE_SECONDS or call.services.stopping.is_set()
        if granted or over or await call.request.is_disconnected():
            break
    if granted:
        await _handed(call, tasks, granted)
    return TaskClaimAnswer(tasks=granted)


async def _handed(call: Call, tasks: LocalTasks, granted: Sequence[TaskGrant]) -> None:
    """See that the worker may still have what was claimed for it while it waited; else others get it at once."""
    try:
        await call.still_admitted()
    except NoetlError:
        for grant in granted:
            await tasks.fail(grant, TaskReport(status="canceled", error="the worker is no longer admitted"))
        raise


@routes.post("/api/tasks/fetch", WORKERS)
async def fetch_task(call: Call, body: TaskLeaseRequest) -> TaskGrantAnswer:
    """Return once more what was granted with a lease that is still held."""
    return TaskGrantAnswer(task=await _tasks(call).fetch(body.lease.lease()))


@routes.post("/api/tasks/heartbeat", WORKERS)
async def heartbeat_tasks(call: Call, body: TaskLeasesRequest) -> TaskLeasesAnswer:
    """Make leases last longer and name those that are lost; a task that is to be cancelled ends hereby."""
    return TaskLeasesAnswer(lost=await _tasks(call).heartbeat([proof.lease() for proof in body.leases]))


@routes.post("/api/tasks/started", WORKERS, status=204)
async def start_task(call: Call, body: TaskStartedRequest) -> None:
    """Record where an attempt runs before it begins, so that whoever comes after a crash can stop it."""
    grant = await _tasks(call).fetch(body.lease.lease())
    await _tasks(call).started(grant, body.application_id, body.job_tag)


@routes.post("/api/tasks/complete", WORKERS)
async def complete_task(call: Call, body: TaskEndRequest) -> Answer | TaskEndAnswer:
    """Commit what an attempt wrote, all of it at once or nothing; the same report again gets the same answer.

    A commit whose rows have to be made unique against another commit first is refused with the code `base_moved`; the
    problem then has the partitions that moved, each with its manifest.
    """

    async def complete(grant: TaskGrant) -> TaskStatus:
        if body.operator_state_before is not None:
            grant = msgspec.structs.replace(grant, operator_state=body.operator_state_before)
        return await _tasks(call).complete(grant, await _with_log(call, body))

    try:
        return await _ended(call, body.lease.lease(), complete)
    except BaseMoved as moved:
        return _refused(moved)


@routes.post("/api/tasks/fail", WORKERS)
async def fail_task(call: Call, body: TaskEndRequest) -> TaskEndAnswer:
    """Record that an attempt failed, or was cancelled; the same report again gets the same answer."""
    if body.report.status == "ok":
        raise InputError("a report of status ok is no failure", hint="POST /api/tasks/complete takes it")

    async def fail(grant: TaskGrant) -> TaskStatus:
        return await _tasks(call).fail(grant, await _with_log(call, body))

    return await _ended(call, body.lease.lease(), fail)


async def _ended(call: Call, lease: TaskLease, work: Callable[[TaskGrant], Awaitable[TaskStatus]]) -> TaskEndAnswer:
    """End an attempt; one that ended under this very lease before, in whatever server, gets the same answer again."""

    async def end() -> TaskEndAnswer:
        try:
            return TaskEndAnswer(status=await work(await _tasks(call).fetch(lease)))
        except LeaseLost:
            status = await _recorded(call, lease)
            if status is None:
                raise
            return TaskEndAnswer(status=status)

    answer: TaskEndAnswer = await call.services.leased.once(("task", call.scope, lease), end)
    return answer


async def _recorded(call: Call, lease: TaskLease) -> TaskStatus | None:
    """Return how the holder of a lease ended its attempt, as the events tell; None if it did not."""
    held, status = False, None
    async for event in call.services.ledger.read(identity.task_stream(call.scope, lease.task_id)):
        if event.meta.get("attempt") != lease.attempt:
            continue
        if event.event_type == "task.claimed":
            held = event.meta.get("lease_token") == lease.token
        elif held:
            status = _ENDS.get(event.event_type, status)
    return status


async def _with_log(call: Call, body: TaskEndRequest) -> TaskReport:
    if not body.log:
        return body.report
    ref = await call.services.payloads.store(call.scope, body.log.encode(errors="replace"), _LOG_TYPE)
    return msgspec.structs.replace(body.report, logs=ref)


def _refused(moved: BaseMoved) -> Answer:
    problem = described(moved)
    parts = tuple(
        MovedPart(output=output, part=moved.parts[output, key], manifest=moved.landed[output, key])
        for output, key in sorted(moved.parts)
    )
    found = MovedProblem(**msgspec.structs.asdict(problem), moved=parts)
    return Answer(found, problem.status, {"Content-Type": MEDIA_TYPE})


def _tasks(call: Call) -> LocalTasks:
    return call.pipelines().engine.tasks(call.scope)
