"""In which state of their life the jobs of DAG versions are, as their tasks and leases tell. Only reads."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from noetl.dag.durations import seconds_of
from noetl.leases.kinds import TASK
from noetl.ledger.database import Connection
from noetl.plan.life_cycles import JobState, Sight, reactive_state, source_state
from noetl.plan.turns import AFTER, EVERY_SECONDS

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
