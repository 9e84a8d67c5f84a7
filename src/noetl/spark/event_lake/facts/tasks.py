"""The facts of tasks and of datasets' names: one row for each unit of a job's work, and one for each registration."""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.parsed_events import seconds_between

_LAST: Final = "'task.completed', 'task.skipped', 'task.failed', 'task.cancelled'"
_MOVES: Final = f"{_LAST}, 'task.created', 'task.claimed', 'task.attempt_failed', 'task.abandoned', 'task.retried'"

_QUERY: Final = f"""
WITH told AS (
    SELECT tenant_id, organization_id, execution_id, substring(stream_id, 6) AS task_id, day,
        min_by(
            struct(m_dag AS dag, m_job AS job, m_dag_version_id AS dag_version_id, m_generation AS generation,
                   m_partition_key AS partition_key, m_runtime AS runtime), stream_version
        ) FILTER (WHERE event_type = 'task.created') AS made,
        max_by(event_type, stream_version) FILTER (WHERE event_type IN ({_MOVES})) AS last_type,
        max_by(struct(m_rows AS rows, m_bytes AS bytes), stream_version) FILTER (
            WHERE event_type = 'task.completed'
        ) AS done,
        max_by(metrics, stream_version) FILTER (WHERE event_type = 'task.completed') AS metrics,
        max_by(m_as_task, stream_version) FILTER (WHERE event_type = 'task.skipped') AS skipped_as,
        max_by(error, stream_version) FILTER (WHERE event_type IN ({_LAST}, 'task.attempt_failed', 'task.abandoned'))
            AS error,
        max_by(m_error_kind, stream_version) FILTER (
            WHERE event_type IN ({_LAST}, 'task.attempt_failed', 'task.abandoned')
        ) AS error_kind,
        max(m_attempt) FILTER (WHERE event_type = 'task.claimed') AS attempts,
        min(ingest_time) FILTER (WHERE event_type = 'task.created') AS created_at,
        max_by(ingest_time, stream_version) FILTER (WHERE event_type = 'task.claimed') AS started_at,
        max_by(ingest_time, stream_version) FILTER (WHERE event_type IN ({_LAST})) AS last_end
    FROM e WHERE startswith(event_type, 'task.') AND startswith(stream_id, 'task/')
    GROUP BY tenant_id, organization_id, execution_id, stream_id, day
    HAVING count_if(event_type = 'task.created') > 0
), ended AS (
    SELECT *, CASE WHEN last_type IN ({_LAST}) THEN last_end END AS ended_at FROM told
)
SELECT *, made.dag AS dag, made.job AS job, made.dag_version_id AS dag_version_id, made.generation AS generation,
    made.partition_key AS partition_key, made.runtime AS runtime,
    CASE last_type WHEN 'task.completed' THEN 'Completed' WHEN 'task.skipped' THEN 'Skipped'
        WHEN 'task.failed' THEN 'Failed' WHEN 'task.attempt_failed' THEN 'Failed' WHEN 'task.abandoned' THEN 'Failed'
        WHEN 'task.cancelled' THEN 'Canceled' WHEN 'task.claimed' THEN 'Running' ELSE 'Queued' END AS status,
    coalesce(attempts, 0) AS attempt,
    CASE WHEN last_type = 'task.completed' THEN done.rows END AS rows,
    CASE WHEN last_type = 'task.completed' THEN done.bytes END AS bytes,
    CAST(metrics.execution_id AS BIGINT) AS ran_execution_id,
    {seconds_between("created_at", "ended_at")} AS seconds
FROM ended
"""  # noqa: S608 - ours

TASKS: Final = Fact(
    name="noetl_tasks",
    sentence="One row for each task: one unit of a job's work.",
    columns=columns(
        *OWNER,
        "task_id string: The task.",
        "execution_id bigint: The deploy or emission it belongs to.",
        "dag string: The DAG.",
        "job string: The job.",
        "dag_version_id string: The version of the DAG.",
        "generation string: The generation it builds.",
        "partition_key string: The partition it builds.",
        "runtime string: Where it runs.",
        "status string: `Queued`, `Running`, `Completed`, `Skipped`, `Failed` or `Canceled`.",
        "attempt int: Attempts so far.",
        "rows bigint: Rows readers see of what it committed.",
        "bytes bigint: Bytes of the files readers see of what it committed.",
        "ran_execution_id bigint: The playbook's execution it ran.",
        "skipped_as string: The task that did the same work before.",
        "error string: Why it failed.",
        "error_kind string: The word for why.",
        "created_at timestamp: When it was made available.",
        "started_at timestamp: When it was taken last.",
        "ended_at timestamp: When it ended.",
        "seconds double: From its creation to its end.",
        EXECUTION_DAY,
    ),
    query=_QUERY,
)


DATASETS: Final = Fact(
    name="noetl_datasets",
    sentence="One row for each time a dataset was registered, or given another name.",
    columns=columns(
        *OWNER,
        "dataset_uuid string: The dataset.",
        "name string: The name it was given.",
        "published boolean: Whether readers may ask for it by that name.",
        "dag string: The DAG.",
        "job string: The job that makes it.",
        "output int: Which of the job's outputs it is, from 0.",
        "registered_at timestamp: When it was given the name; the latest one counts.",
        "day date: The day (UTC) of that, or of the deploy it was part of.",
    ),
    query="""
    SELECT *, m_dataset_uuid AS dataset_uuid, m_name AS name, coalesce(m_published, false) AS published, m_dag AS dag,
        m_job AS job, m_output AS output, ingest_time AS registered_at
    FROM e WHERE event_type = 'dataset.registered'
    """,
)
