"""What operators keep between tasks, for people to see. Nothing is written."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

from noetl.errors import InputError, NotFound
from noetl.ledger.database import Database
from noetl.model.stream import Scope

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
