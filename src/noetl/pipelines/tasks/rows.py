"""Tasks and the state of operators as their rows have them, for those who end or show them. Nothing is written."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.model.ids import Id64
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import TaskStatus

COLUMNS: Final = """
t.task_id::text AS task_id, t.job_id::text AS job_id, t.dag_version_id::text AS dag_version_id, t.dag, t.job,
t.generation::text AS generation, t.execution_id, t.dedupe_key, t.partition_key, t.status, t.attempt, t.max_attempts,
t.runtime, t.worker, t.lease_token::text AS lease_token, t.lease_seconds, t.lease_until, t.available_at,
t.cancel_requested, t.application_id, t.job_tag, t.error, t.outputs, t.logs_ref, t.inputs, t.inputs_ref,
t.created_event_id, t.created_at, t.started_at, t.ended_at, t.skipped_as::text AS skipped_as
"""
_ONE: Final = f"SELECT {COLUMNS} FROM noetl.task AS t WHERE t.task_id = $1"  # noqa: S608


class PublicTask(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody may see of a task."""

    task_id: str
    job_id: str
    dag_version_id: str
    dag: str
    job: str
    generation: str
    execution_id: Id64
    partition_key: str
    status: TaskStatus
    attempt: int
    max_attempts: int
    runtime: str
    worker: str | None
    lease_until: datetime | None
    available_at: datetime | None
    cancel_requested: bool
    application_id: str | None
    job_tag: str | None
    error: str | None
    outputs: Any
    logs_ref: PayloadRef | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    skipped_as: str | None


class TaskRow(PublicTask, frozen=True, kw_only=True):
    """Everything that stands about a task, also what only its worker and the engine may know."""

    dedupe_key: str
    lease_token: str | None
    lease_seconds: float
    inputs: list[dict[str, Any]]
    inputs_ref: PayloadRef | None
    created_event_id: int

    @property
    def open(self) -> bool:
        """Whether it runs, waits, or will be tried again."""
        return self.status in {"Queued", "Running"} or (self.status == "Failed" and self.available_at is not None)


def task_row(row: Any) -> TaskRow:
    """Read a row of `COLUMNS`."""
    fields = dict(row)
    for name in ("outputs", "inputs"):
        fields[name] = None if fields[name] is None else orjson.loads(fields[name])
    for name in ("logs_ref", "inputs_ref"):
        if fields[name] is not None:
            fields[name] = msgspec.convert(orjson.loads(fields[name]), PayloadRef)
    fields["inputs"] = fields["inputs"] or []
    fields["lease_seconds"] = float(fields["lease_seconds"])
    return TaskRow(**fields)


async def read_task(connection: Connection, task_id: str) -> TaskRow:
    """Return a task by its id."""
    row = await connection.fetchrow(_ONE, task_id)
    if row is None:
        raise NotFound(f"there is no task {task_id}", hint="`noetl tasks list` shows those there are")
    return task_row(row)


_JOB: Final = """
SELECT j.generation::text AS generation, j.operator
FROM noetl.dag_current_version AS c JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id)
WHERE c.dag = $1 AND j.name = $2
"""
_STATES: Final = "SELECT state_key, state, version FROM noetl.operator_state WHERE generation = $1 ORDER BY state_key"


class OperatorState(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator keeps under one key, and the how-manieth it is."""

    state_key: str
    state: Any
    version: int


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator of a job keeps between tasks."""

    dag: str
    job: str
    operator: str
    generation: str
    states: tuple[OperatorState, ...]


async def job_state(database: Database, scope: Scope, name: str) -> JobState:
    """Return what the operator of DAG.JOB keeps in the version that serves."""
    dag, dot, job = name.partition(".")
    if not dot:
        raise InputError(f"{name!r} names no job", hint="write it as DAG.JOB")
    async with database.transaction(scope) as connection:
        row = await connection.fetchrow(_JOB, dag, job)
        if row is None:
            raise NotFound(f"the current version of DAG {dag} has no job {job}", hint=f"see `noetl dag status {dag}`")
        states = await connection.fetch(_STATES, row["generation"])
    return JobState(
        dag=dag,
        job=job,
        operator=row["operator"],
        generation=row["generation"],
        states=tuple(
            OperatorState(state_key=one["state_key"], state=orjson.loads(one["state"]), version=one["version"])
            for one in states
        ),
    )
