"""The fact of frames: one row for each window of rows or shard of a fan-out that a worker was given."""

from __future__ import annotations

from typing import Final

from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.parsing import seconds_between

DISPATCHED: Final = sql_texts(types_of_attempts("begun", at="frame"))
COMMITTED: Final = sql_texts(types_of_attempts("completed", at="frame"))
FAILED: Final = sql_texts(types_of_attempts("failed", at="frame"))
ABANDONED: Final = sql_texts(types_of_attempts("abandoned", at="frame"))
ATTEMPT_FAILED: Final = sql_texts(types_of_attempts("attempt_failed", at="frame"))
_ENDED: Final = f"{COMMITTED}, {FAILED}"

_QUERY: Final = f"""
WITH placed AS (
    SELECT *,
        max(CASE WHEN stream_version = 1 AND event_type IN ({DISPATCHED}) THEN 1 END) OVER one AS opened,
        min(CASE WHEN event_type IN ({_ENDED}) THEN stream_version END) OVER one AS ended
    FROM e WHERE own AND frame_id IS NOT NULL AND stream_id = concat('execution/', execution_id, '/frame/', frame_id)
    WINDOW one AS (PARTITION BY tenant_id, organization_id, execution_id, frame_id)
), told AS (
    SELECT tenant_id, organization_id, execution_id, frame_id, day,
        min_by(stage_id, stream_version) AS stage_id,
        min_by(loop_id, stream_version) AS loop_id,
        min_by(node_name, stream_version) AS step,
        min_by(shard_id, stream_version) AS shard_id,
        min_by(m_frame_index, stream_version) AS frame_index,
        min_by(current_index, stream_version) AS first_index,
        min_by(m_row_count, stream_version) AS given_rows,
        max_by(m_row_count, stream_version) FILTER (WHERE event_type IN ({COMMITTED})) AS committed_rows,
        max_by(coalesce(m_failed_count, 0), stream_version) FILTER (WHERE event_type IN ({COMMITTED})) AS failed_rows,
        max_by(m_attempt, stream_version) FILTER (WHERE event_type IN ({DISPATCHED}, {COMMITTED})) AS attempts,
        max_by(m_worker, stream_version) FILTER (WHERE event_type IN ({DISPATCHED})) AS worker,
        max_by(command_id, stream_version) FILTER (WHERE event_type IN ({DISPATCHED})) AS command_id,
        max_by(event_type, stream_version) FILTER (WHERE NOT event_type = 'frame.checkpointed') AS last_type,
        max_by(error, stream_version) FILTER (WHERE error IS NOT NULL) AS last_error,
        min(event_time) FILTER (WHERE stream_version = 1) AS dispatched_at,
        max_by(event_time, stream_version) FILTER (WHERE event_type IN ({_ENDED})) AS ended_at,
        count_if(event_type IN ({ABANDONED})) AS lost,
        min_by(payload.bytes, stream_version) FILTER (WHERE event_type IN ({DISPATCHED})) AS input_bytes,
        max_by(payload.bytes, stream_version) FILTER (WHERE event_type IN ({COMMITTED})) AS output_bytes
    FROM placed WHERE opened = 1 AND (ended IS NULL OR stream_version <= ended)
    GROUP BY tenant_id, organization_id, execution_id, frame_id, day
)
SELECT *, CASE WHEN shard_id IS NULL THEN 'frame' ELSE 'shard' END AS kind,
    coalesce(committed_rows, given_rows, 0) AS rows,
    CASE WHEN last_type IN ({FAILED}) THEN coalesce(given_rows, 1) ELSE coalesce(failed_rows, 0) END AS rows_failed,
    CASE WHEN last_type IN ({COMMITTED}) THEN 'COMMITTED' WHEN last_type IN ({FAILED}) THEN 'FAILED'
         WHEN last_type IN ({ABANDONED}) THEN 'ABANDONED' WHEN last_type IN ({ATTEMPT_FAILED}) THEN 'ATTEMPT_FAILED'
         ELSE 'DISPATCHED' END AS status,
    CASE WHEN last_type IN ({COMMITTED}) THEN NULL ELSE last_error END AS error,
    {seconds_between("dispatched_at", "ended_at")} AS seconds
FROM told
"""  # noqa: S608 - ours

FRAMES: Final = Fact(
    name="noetl_frames",
    sentence="One row for each frame of a loop or shard of a fan-out.",
    columns=columns(
        *OWNER,
        "execution_id bigint: The execution.",
        "frame_id bigint: The frame.",
        "stage_id bigint: The stage it belongs to.",
        "loop_id bigint: The loop it belongs to.",
        "step string: The step.",
        "kind string: `frame` or `shard`.",
        "frame_index int: Its place among the frames of its stage, from 0.",
        "first_index int: The place of its first row in the collection.",
        "command_id string: The command whose worker had it last.",
        "worker string: Who had it last.",
        "status string: `DISPATCHED`, `COMMITTED`, `FAILED`, `ABANDONED` or `ATTEMPT_FAILED`.",
        "attempts int: Attempts that were begun.",
        "lost int: Attempts whose worker was lost.",
        "rows bigint: Rows in it.",
        "rows_failed bigint: Rows that failed.",
        "input_bytes bigint: Bytes of the rows, where they were claimed elsewhere and stored.",
        "output_bytes bigint: Bytes of the result that was stored.",
        "dispatched_at timestamp: When it was first given to a worker.",
        "ended_at timestamp: When it was committed or failed for good.",
        "seconds double: From the first dispatch to the end.",
        "error string: Why it failed.",
        EXECUTION_DAY,
    ),
    query=_QUERY,
)
