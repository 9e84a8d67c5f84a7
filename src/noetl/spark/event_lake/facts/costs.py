"""Cost and billing facts: what playbooks, jobs and queries of a day used, each second and byte in one row only.

What a task's playbook used stands in the playbook's rows, which name the job it ran for: summed up by `dataset` they
belong to the dataset, summed up by `playbook` to the playbook, and nothing is counted twice.
"""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.fact import OWNER, Fact, columns

_KEYS: Final = "tenant_id, organization_id, day, kind, playbook, dataset, dataset_uuid"
_EXECUTION: Final = "tenant_id, organization_id, execution_id"
_COUNTS: Final = ("executions", "tasks", "queries", "attempts", "attempts_failed", "rows", "rows_failed", "bytes")
_SECONDS: Final = (
    "engine_seconds", "tool_seconds", "spark_seconds", "query_seconds", "unmeasured_seconds",
)  # fmt: skip
_ATTEMPT: Final = """
    count(*) AS attempts, count_if(result IN ('failed', 'abandoned')) AS attempts_failed,
    sum(engine_seconds) AS engine_seconds, sum(tool_seconds) AS tool_seconds, sum(spark_seconds) AS spark_seconds,
    sum(CASE WHEN tool_seconds IS NULL AND spark_seconds IS NULL AND ran_execution_id IS NULL THEN held_seconds END)
        AS unmeasured_seconds
"""

_QUERY: Final = f"""
WITH worked AS (
    SELECT {_EXECUTION}, {_ATTEMPT} FROM noetl_attempts WHERE kind = 'command' GROUP BY {_EXECUTION}
), framed AS (
    SELECT {_EXECUTION}, sum(CASE WHEN status = 'COMMITTED' THEN rows - rows_failed END) AS rows,
        sum(rows_failed) AS rows_failed
    FROM noetl_frames GROUP BY {_EXECUTION}
), of_playbooks AS (
    SELECT tenant_id, organization_id, x.day, 'playbook' AS kind, x.path AS playbook, x.for_job AS dataset,
        CAST(NULL AS STRING) AS dataset_uuid, 1 AS executions, 0 AS tasks, 0 AS queries, worked.attempts,
        worked.attempts_failed, framed.rows, framed.rows_failed, payload_bytes AS bytes, engine_seconds, tool_seconds,
        spark_seconds, 0D AS query_seconds, unmeasured_seconds
    FROM noetl_executions AS x JOIN noetl_metrics USING ({_EXECUTION})
        LEFT JOIN worked USING ({_EXECUTION}) LEFT JOIN framed USING ({_EXECUTION})
    WHERE x.kind = 'playbook'
), written AS (
    SELECT {_EXECUTION}, m_task_id AS task_id, m_dataset_uuid AS dataset_uuid, m_rows AS rows, m_bytes AS bytes,
        m_rows_added AS rows_added, m_bytes_added AS bytes_added,
        m_update = 'replace' OR m_version = 1 AS whole, lag(m_version) OVER commits = m_version - 1 AS follows,
        lag(m_rows) OVER commits AS rows_before, lag(m_bytes) OVER commits AS bytes_before
    FROM e WHERE event_type = 'partition.committed'
    WINDOW commits AS (PARTITION BY tenant_id, organization_id, stream_id ORDER BY m_version)
), added AS (
    -- A commit tells what it brought. Those that were recorded before they did so tell what stands afterwards: what an
    -- append brought is then the difference to the commit before, where that is of the same day.
    SELECT {_EXECUTION}, task_id, dataset_uuid,
        sum(coalesce(rows_added, CASE WHEN whole THEN rows WHEN follows THEN rows - rows_before END)) AS rows,
        sum(coalesce(bytes_added, CASE WHEN whole THEN bytes WHEN follows THEN bytes - bytes_before END)) AS bytes
    FROM written GROUP BY {_EXECUTION}, task_id, dataset_uuid
), shared AS (
    SELECT *, count(*) OVER (PARTITION BY {_EXECUTION}, task_id) AS shares FROM added
), tried AS (
    SELECT {_EXECUTION}, subject AS task_id, {_ATTEMPT} FROM noetl_attempts WHERE kind = 'task'
    GROUP BY {_EXECUTION}, subject
), of_tasks AS (
    SELECT tenant_id, organization_id, day, 'dataset' AS kind, CAST(NULL AS STRING) AS playbook,
        concat(dag, '.', job) AS dataset, dataset_uuid, 0 AS executions, 1D / coalesce(shares, 1) AS tasks, 0 AS queries,
        attempts / coalesce(shares, 1) AS attempts, attempts_failed / coalesce(shares, 1) AS attempts_failed,
        shared.rows, 0 AS rows_failed, shared.bytes,
        engine_seconds / coalesce(shares, 1) AS engine_seconds, tool_seconds / coalesce(shares, 1) AS tool_seconds,
        spark_seconds / coalesce(shares, 1) AS spark_seconds, 0D AS query_seconds,
        unmeasured_seconds / coalesce(shares, 1) AS unmeasured_seconds
    FROM noetl_tasks LEFT JOIN tried USING ({_EXECUTION}, task_id) LEFT JOIN shared USING ({_EXECUTION}, task_id)
), of_queries AS (
    SELECT tenant_id, organization_id, day, 'query' AS kind, CAST(NULL AS STRING) AS playbook,
        CAST(NULL AS STRING) AS dataset, CAST(NULL AS STRING) AS dataset_uuid, 0 AS executions, 0 AS tasks, 1 AS queries,
        1 AS attempts, CASE WHEN event_type = 'query.failed' THEN 1 ELSE 0 END AS attempts_failed, m_rows AS rows,
        0 AS rows_failed, m_bytes AS bytes, 0D AS engine_seconds, 0D AS tool_seconds,
        CASE WHEN m_engine = 'spark' THEN m_milliseconds / 1000 END AS spark_seconds,
        CASE WHEN m_engine <> 'spark' THEN m_milliseconds / 1000 END AS query_seconds, 0D AS unmeasured_seconds
    FROM e WHERE event_type IN ('query.answered', 'query.failed')
)
SELECT {_KEYS}, {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in (*_COUNTS, *_SECONDS))}
FROM (SELECT * FROM of_playbooks UNION ALL SELECT * FROM of_tasks UNION ALL SELECT * FROM of_queries)
GROUP BY {_KEYS}
"""  # noqa: S608 - ours

COSTS: Final = Fact(
    name="noetl_costs",
    sentence="What the playbooks, datasets and queries of a day used.",
    columns=columns(
        *OWNER,
        "kind string: `playbook`, `dataset` (tasks of a job) or `query`.",
        "playbook string: The playbook's path.",
        "dataset string: The job that makes the dataset, as `dag.job`: of tasks, and of playbooks that ran for one.",
        "dataset_uuid string: The dataset; none where a task committed nothing.",
        "executions bigint: Executions of the playbook.",
        "tasks double: Tasks; one that writes several datasets counts in parts.",
        "queries bigint: Queries that were run.",
        "attempts double: Attempts at commands, at tasks, or at queries.",
        "attempts_failed double: Those that failed or were lost.",
        "rows bigint: Rows worked off in frames, rows that tasks added to the dataset, or rows of answers.",
        "rows_failed bigint: Rows of frames that failed.",
        "bytes bigint: Bytes of payloads that executions stored, of files that tasks added, or of answers.",
        "engine_seconds double: Time under a lease in which neither a tool nor Spark worked.",
        "tool_seconds double: Time in which tools worked.",
        "spark_seconds double: Time in which Spark worked, for tasks, commands and queries.",
        "query_seconds double: Time in which queries ran in this process (DuckDB).",
        "unmeasured_seconds double: Time under a lease of which nobody told what it was spent on.",
        "day date: The day (UTC) on which the executions were asked for.",
    ),
    query=_QUERY,
)
