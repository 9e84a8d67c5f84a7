"""The facts of executions: one row each, and the metrics by which runs of the same playbook are compared."""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.parsed_events import seconds_between
from noetl.spark.event_lake.facts.steps import DISPATCHED

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


_KEYS: Final = "tenant_id, organization_id, execution_id"

_METRICS_QUERY: Final = f"""
WITH counted AS (
    SELECT {_KEYS},
        count_if(startswith(event_type, 'command.')) AS command_events,
        count_if(event_type IN ({DISPATCHED}) OR event_type LIKE 'frame.%' OR event_type LIKE 'loop.shard.%')
            AS frame_events,
        count_if(event_type = 'command.issued') AS commands,
        count_if(event_type IN ('command.claimed', {DISPATCHED})
            OR (event_type = 'command.issued' AND m_worker IS NOT NULL)) AS claims,
        count_if(event_type LIKE '%.abandoned') AS recoveries,
        count_if(event_type LIKE '%.attempt_failed') AS attempts_failed,
        min(event_time) AS first_at, max(event_time) AS last_at
    FROM e WHERE own GROUP BY {_KEYS}
), framed AS (
    SELECT {_KEYS}, count_if(rows > 0) AS frames, sum(rows) AS rows FROM noetl_frames GROUP BY {_KEYS}
), stored AS (
    SELECT {_KEYS}, count(*) AS payloads, sum(bytes) AS payload_bytes FROM (
        SELECT DISTINCT {_KEYS}, ref.sha256, ref.bytes
        FROM (SELECT *, explode(array(payload, fields)) AS ref FROM e WHERE own) WHERE ref.sha256 IS NOT NULL
    ) GROUP BY {_KEYS}
), joined AS (
    SELECT x.*, counted.* EXCEPT ({_KEYS}), coalesce(frames, 0) AS frames, coalesce(framed.rows, 0) AS rows,
        coalesce(payloads, 0) AS payloads, coalesce(payload_bytes, 0) AS payload_bytes,
        {seconds_between("first_at", "coalesce(ended_at, last_at)")} AS span
    FROM noetl_executions AS x JOIN counted USING ({_KEYS}) LEFT JOIN framed USING ({_KEYS})
        LEFT JOIN stored USING ({_KEYS})
)
SELECT *, seconds AS wall_seconds, CASE WHEN frames > 0 THEN rows / frames END AS rows_per_frame,
    CASE WHEN rows > 0 THEN events / rows END AS events_per_row,
    CASE WHEN span > 0 THEN events / span END AS events_per_second
FROM joined
"""  # noqa: S608 - ours

METRICS: Final = Fact(
    name="noetl_metrics",
    sentence="One row for each execution: the figures to compare runs by.",
    columns=columns(
        *OWNER,
        "execution_id bigint: The execution.",
        "path string: The playbook's path, or `dag/<name>`.",
        "status string: As in `noetl_executions`.",
        "wall_seconds double: From its start to its end.",
        "events bigint: Events in its own streams, up to its end.",
        "command_events bigint: Those about commands.",
        "frame_events bigint: Those about frames and shards.",
        "commands bigint: Commands that were made available.",
        "claims bigint: Leases that were given: on commands, frames and shards.",
        "frames bigint: Frames and shards with at least one row.",
        "rows bigint: Rows in them.",
        "rows_per_frame double: Rows by frames.",
        "events_per_row double: Events by rows.",
        "events_per_second double: The rate at which projections had to be written.",
        "payloads bigint: Payloads its events refer to, each once.",
        "payload_bytes bigint: Bytes of them.",
        "recoveries bigint: Leases that ran out and were given to others.",
        "attempts_failed bigint: Attempts that failed and were tried again.",
        EXECUTION_DAY,
    ),
    query=_METRICS_QUERY,
)
