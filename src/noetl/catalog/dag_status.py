"""How far a version of a DAG is: its jobs with their tasks, partitions, rows and last errors. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from noetl.catalog.dag_rows import DagVersion, jobs_of
from noetl.catalog.job_states import lives_of
from noetl.ledger.database import Connection
from noetl.plan.life_cycles import JobState

_NEWEST: Final = """
SELECT DISTINCT ON (t.generation, t.partition_key) t.generation, t.partition_key, t.job, t.error,
       CASE WHEN t.status = 'Failed' AND t.available_at IS NOT NULL THEN 'Retrying' ELSE t.status END AS status
FROM noetl.task AS t JOIN noetl.job AS j ON j.generation = t.generation AND j.dag_version_id = $1
WHERE j.name = ANY ($2) ORDER BY t.generation, t.partition_key, t.created_event_id DESC
"""
_OBSTACLES = f"""
SELECT job, status, count(*) AS tasks, min(error) AS error FROM ({_NEWEST}) AS newest
WHERE status NOT IN ('Completed', 'Skipped') GROUP BY job, status ORDER BY job, status
"""  # noqa: S608 - constants
_NOT_BEGUN = """
SELECT j.name FROM noetl.job AS j WHERE j.dag_version_id = $1 AND j.name = ANY ($2) AND j.activation = 'source'
    AND NOT EXISTS (SELECT FROM noetl.task AS t WHERE t.generation = j.generation) ORDER BY 1
"""
_UNROUTED = "SELECT count(*) FROM noetl.outbox WHERE execution_id = $1 AND status = 'Pending' AND kind = 'route_event'"
_TASKS = """
SELECT t.job, CASE WHEN t.status = 'Failed' AND t.available_at IS NOT NULL THEN 'Retrying' ELSE t.status END AS status,
       count(*) AS tasks
FROM noetl.task AS t JOIN noetl.job AS j ON j.generation = t.generation AND j.dag_version_id = $1
GROUP BY 1, 2
"""
_ERRORS = """
SELECT DISTINCT ON (t.job) t.job, t.error FROM noetl.task AS t
JOIN noetl.job AS j ON j.generation = t.generation AND j.dag_version_id = $1
WHERE t.status IN ('Failed', 'Canceled') AND t.error IS NOT NULL
ORDER BY t.job, coalesce(t.ended_at, t.started_at, t.created_at) DESC
"""
_PARTS = """
SELECT p.dataset_uuid::text AS dataset_uuid, count(*) AS partitions, sum(p.row_count)::bigint AS rows,
       sum(p.bytes)::bigint AS bytes
FROM noetl.dag_version_dataset AS s
JOIN noetl.partition_version AS p ON p.dataset_version = s.dataset_version AND p.current AND NOT p.dropped
WHERE s.dag_version_id = $1 GROUP BY 1
"""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job: in which state of its life, how many tasks are in which state, and what it has made so far."""

    name: str
    generation: str
    activation: Literal["source", "reactive"]
    source: str | None
    """What starts it, if it is a source: manual, cron, always_on or webhook."""
    state: JobState | None
    """A source is Pending, Running, Dead or Draining, a reactive job Idle or Running; None if nobody uses it any more."""
    built: bool
    """Whether this version builds it; otherwise its data stood already."""
    tasks: dict[str, int]
    """By status; `Retrying` are those that failed and will be tried again."""
    partitions: int
    rows: int
    bytes: int
    last_error: str | None


class DagStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a DAG, job by job, beside the version that serves readers."""

    version: DagVersion
    current: str | None
    jobs: tuple[JobStatus, ...]
    obstacles: tuple[str, ...]
    """What is missing before the version can be ready."""


async def obstacles(connection: Connection, version: DagVersion) -> list[str]:
    """Say what is missing of the generations a version builds: of each partition the newest task counts."""
    rows = await connection.fetch(_NOT_BEGUN, version.dag_version_id, list(version.built))
    found = [f"job {row['name']} has not run yet" for row in rows]
    rows = await connection.fetch(_OBSTACLES, version.dag_version_id, list(version.built))
    found += [
        f"{row['tasks']} {row['status'].lower()} {'task' if row['tasks'] == 1 else 'tasks'} of job {row['job']}"
        + (f" ({row['error']})" if row["error"] else "")
        for row in rows
    ]
    unrouted = await connection.fetchval(_UNROUTED, version.deploy_execution_id)
    return [*found, *([f"{unrouted} changes are not routed yet"] if unrouted else [])]


async def status_of(connection: Connection, version: DagVersion, versions: Sequence[DagVersion]) -> DagStatus:
    """Say how far a version is."""
    identifier = version.dag_version_id
    tasks: dict[str, dict[str, int]] = {}
    for row in await connection.fetch(_TASKS, identifier):
        tasks.setdefault(row["job"], {})[row["status"]] = row["tasks"]
    errors = {row["job"]: row["error"] for row in await connection.fetch(_ERRORS, identifier)}
    parts = {row["dataset_uuid"]: row for row in await connection.fetch(_PARTS, identifier)}
    lives = await lives_of(connection, identifier)
    found = []
    for job in await jobs_of(connection, identifier):
        made = [parts[output] for output in job.outputs if output in parts]
        found.append(
            JobStatus(
                name=job.name,
                generation=job.generation,
                activation=lives[job.name].activation,
                source=lives[job.name].source,
                state=lives[job.name].state,
                built=job.name in version.built,
                tasks=tasks.get(job.name, {}),
                partitions=sum(row["partitions"] for row in made),
                rows=sum(row["rows"] for row in made),
                bytes=sum(row["bytes"] for row in made),
                last_error=errors.get(job.name),
            )
        )
    return DagStatus(
        version=version,
        current=next((one.dag_version_id for one in versions if one.status == "active"), None),
        jobs=tuple(found),
        obstacles=tuple(await obstacles(connection, version)) if version.ready_at is None else (),
    )
