"""The fact of executions: one row each, equal to the projection where that has the same column."""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.parsing import seconds_between

_QUERY: Final = f"""
WITH placed AS (
    SELECT *,
        min(CASE WHEN stream_version = 1 AND stream_id = concat('execution/', execution_id) THEN position END)
            OVER one AS opened,
        min(CASE WHEN ends THEN position END) OVER one AS ended
    FROM e WHERE own
    WINDOW one AS (PARTITION BY tenant_id, organization_id, execution_id)
), told AS (
    SELECT tenant_id, organization_id, execution_id, day,
        min_by(event_type, position) AS first_type,
        max_by(
            struct(m_kind AS kind, m_path AS path, m_version AS version, m_requested_by AS requested_by,
                   m_rerun_of AS rerun_of), position
        ) FILTER (WHERE event_type = 'execution.requested') AS asked,
        any_value(idempotency_key) FILTER (WHERE event_type = 'execution.requested') AS request_key,
        min_by(catalog_id, position) FILTER (WHERE catalog_id IS NOT NULL) AS catalog_id,
        min_by(parent_execution_id, position) FILTER (WHERE parent_execution_id IS NOT NULL) AS parent_execution_id,
        min(event_time) FILTER (WHERE event_type = 'execution.requested') AS requested_at,
        min_by(event_time, position) FILTER (
            WHERE event_type IN ('playbook.initialized', 'workflow.initialized')
        ) AS began_at,
        max_by(event_time, position) FILTER (WHERE position = ended) AS ended_at,
        max_by(event_type, position) FILTER (WHERE position = ended) AS end_type,
        max_by(error, position) FILTER (WHERE position = ended) AS error,
        max_by(node_name, position) FILTER (WHERE position = ended) AS failed_step,
        max_by(m_swallowed, position) FILTER (WHERE position = ended) AS swallowed,
        max_by(event_type, position) AS last_event_type,
        max(event_time) AS last_event_at,
        count(*) AS events
    FROM placed WHERE opened IS NOT NULL AND position >= opened AND (ended IS NULL OR position <= ended)
    GROUP BY tenant_id, organization_id, execution_id, day
), timed AS (
    SELECT *, coalesce(asked.kind, 'playbook') AS kind, coalesce(asked.kind IN ('deploy', 'emission'), false) AS is_run,
        CASE WHEN coalesce(asked.kind IN ('deploy', 'emission'), false) THEN requested_at ELSE began_at END AS started_at
    FROM told
)
SELECT *, asked.path AS path, asked.version AS version, asked.requested_by AS requested_by, asked.rerun_of AS rerun_of,
    CASE WHEN startswith(request_key, 'request/task/') AND startswith(asked.requested_by, 'job ')
         THEN substring(asked.requested_by, 5) END AS for_job,
    CASE WHEN end_type LIKE '%.completed' THEN 'COMPLETED' WHEN end_type LIKE '%.failed' THEN 'FAILED'
         WHEN end_type LIKE '%.cancelled' THEN 'CANCELLED'
         WHEN is_run OR began_at IS NOT NULL OR first_type <> 'execution.requested' THEN 'RUNNING' ELSE 'PENDING' END
        AS status,
    {seconds_between("started_at", "ended_at")} AS seconds
FROM timed
"""  # noqa: S608 - ours

EXECUTIONS: Final = Fact(
    name="noetl_executions",
    sentence="One row for each execution: of a playbook, or of a DAG's deploy or emission.",
    columns=columns(
        *OWNER,
        "execution_id bigint: The execution.",
        "kind string: `playbook`, or what a run of a DAG is: `deploy`, `emission` and the like.",
        "path string: The playbook's path, or `dag/<name>`.",
        "version int: The version of the playbook.",
        "catalog_id string: The playbook's place in the catalog.",
        "parent_execution_id bigint: The execution that started it.",
        "rerun_of bigint: The execution it repeats.",
        "requested_by string: Who asked for it.",
        "for_job string: The job (`dag.job`) whose task ran the playbook; none for all others.",
        "status string: `PENDING`, `RUNNING`, `COMPLETED`, `FAILED` or `CANCELLED`.",
        "requested_at timestamp: When it was asked for.",
        "started_at timestamp: When its work began.",
        "ended_at timestamp: When it ended.",
        "seconds double: From its start to its end.",
        "error string: Why it failed.",
        "failed_step string: The step it failed in.",
        "swallowed int: Errors that its rules let pass.",
        "events bigint: Events in its own streams, up to its end.",
        "last_event_type string: The last of them.",
        "last_event_at timestamp: The latest time one of them tells.",
        EXECUTION_DAY,
    ),
    query=_QUERY,
)
