"""How far a version of a DAG is: its jobs with their states, tasks, partitions, rows and last errors. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.postgres.database import Connection
from noetl.language.dag.times import seconds_of
from noetl.pipelines.catalog.dags.rows import DagVersion, jobs_of
from noetl.pipelines.plan.life_cycles import AFTER, EVERY_SECONDS, JobState, Sight, reactive_state, source_state

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


_OPEN: Final = f"""
SELECT t.tenant_id, t.organization_id, t.generation,
       count(*) FILTER (WHERE {TASK.lasting("t")}) AS held,
       count(*) FILTER (WHERE {TASK.expired("t")}) AS lost,
       count(*) FILTER (WHERE {TASK.lasting("t")} AND t.cancel_requested)
           AS stopping,
       count(*) FILTER (WHERE t.status = 'Queued') AS queued,
       count(*) FILTER (WHERE t.status = 'Failed') AS retrying
FROM (
    SELECT * FROM noetl.task WHERE status = 'Running'
    UNION ALL SELECT * FROM noetl.task WHERE {TASK.waiting()}
) AS t GROUP BY 1, 2, 3
"""  # noqa: S608
# Of a source that is kept running its newest turn counts, which its key tells without a look at the others.
_SEEN: Final = f"""
WITH open AS MATERIALIZED ({_OPEN})
SELECT j.name, j.activation, j.definition ->> 'idle_timeout' AS idle_timeout, j.definition -> 'source' ->> 'kind' AS kind,
       j.definition -> 'source' ->> 'every' AS every, j.lease_seconds, v.status AS version_status,
       coalesce(o.held, 0) AS held, coalesce(o.lost, 0) AS lost, coalesce(o.stopping, 0) AS stopping,
       coalesce(o.queued, 0) AS queued, coalesce(o.retrying, 0) AS retrying,
       turn.status AS newest, coalesce(turn.ended_at, ended.ended_at) AS last_sign, clock_timestamp() AS now
FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
LEFT JOIN open AS o USING (tenant_id, organization_id, generation)
LEFT JOIN LATERAL (
    -- One that was done before it heard that it should stop is the last all the same.
    SELECT CASE WHEN t.cancel_requested AND t.status = 'Completed' THEN 'Canceled' ELSE t.status END AS status, t.ended_at
    FROM noetl.task AS t
    WHERE t.generation = j.generation AND t.tenant_id = j.tenant_id AND t.organization_id = j.organization_id
      AND t.dedupe_key < '{AFTER}' ORDER BY t.dedupe_key DESC LIMIT 1
) AS turn ON j.definition -> 'source' ->> 'kind' = 'always_on'
LEFT JOIN LATERAL (
    SELECT max(t.ended_at) AS ended_at FROM noetl.task AS t
    WHERE t.generation = j.generation AND t.tenant_id = j.tenant_id AND t.organization_id = j.organization_id
) AS ended ON j.activation = 'reactive' AND j.definition ? 'idle_timeout'
"""  # noqa: S608 - constants
_OF_VERSION: Final = f"{_SEEN} WHERE j.dag_version_id = $1"
_SERVING: Final = f"{_SEEN} WHERE v.status = 'active'"

_UNUSED: Final = "retired"


class JobLife(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is, and in which state of its life."""

    name: str
    activation: Literal["source", "reactive"]
    source: str | None
    """What starts it, if it is a source."""
    state: JobState | None
    """None once no version in use has it and nothing of it runs."""


async def lives_of(connection: Connection, dag_version_id: str) -> dict[str, JobLife]:
    """Return the jobs of a version by name."""
    return {row["name"]: _life(row) for row in await connection.fetch(_OF_VERSION, dag_version_id)}


async def serving_lives(connection: Connection) -> list[JobLife]:
    """Return the jobs of all versions that serve, of every organization the connection sees."""
    return [_life(row) for row in await connection.fetch(_SERVING)]


def _life(row: Any) -> JobLife:
    seen = Sight(
        in_use=row["version_status"] != _UNUSED,
        held=row["held"],
        lost=row["lost"],
        stopping=row["stopping"],
        queued=row["queued"],
        retrying=row["retrying"],
        newest=row["newest"],
        last_sign=row["last_sign"],
    )
    state: JobState | None
    if row["activation"] == "source":
        state = source_state(
            seen,
            kept_running=row["kind"] == "always_on" and row["version_status"] == "active",
            now=row["now"],
            every_seconds=EVERY_SECONDS if row["every"] is None else seconds_of(row["every"]),
            silent_seconds=row["lease_seconds"],
        )
    else:
        idle = row["idle_timeout"]
        state = reactive_state(seen, now=row["now"], idle_seconds=None if idle is None else seconds_of(idle))
    source = (row["kind"] or "manual") if row["activation"] == "source" else None
    return JobLife(name=row["name"], activation=row["activation"], source=source, state=state)
