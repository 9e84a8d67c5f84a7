"""The facts of steps and frames: one row for each activation of a step, and one for each frame a worker was given."""

from __future__ import annotations

from typing import Final

from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.parsed_events import seconds_between

_KEYS: Final = "tenant_id, organization_id, execution_id"
# <step>/<run>/<slot>; a step's name may hold any letters.
_COMMAND: Final = "^(.*)/([0-9]+)/([0-9]+)$"

_QUERY: Final = f"""
WITH runs AS (
    SELECT {_KEYS}, node_name AS step, m_run AS run, day,
        min_by(event_type, position) AS first_type,
        min(event_time) FILTER (WHERE event_type <> 'step.exited') AS started_at,
        max_by(loop_id, position) FILTER (WHERE event_type = 'step.entered') AS loop_id,
        max_by(stage_id, position) FILTER (WHERE event_type = 'step.entered') AS stage_id,
        max_by(coalesce(status, 'completed'), position) FILTER (WHERE event_type = 'step.exited') AS left_as,
        max(event_time) FILTER (WHERE event_type = 'step.exited') AS left_at,
        max_by(coalesce(error, m_reason), position) FILTER (WHERE event_type <> 'step.entered') AS error
    FROM e WHERE own AND event_type IN ('step.entered', 'step.skipped', 'step.exited')
    GROUP BY {_KEYS}, node_name, m_run, day
), ended AS (
    SELECT runs.*, x.ended_at AS execution_ended_at
    FROM runs LEFT JOIN (SELECT {_KEYS}, ended_at FROM noetl_executions) AS x USING ({_KEYS})
), commands AS (
    SELECT {_KEYS}, regexp_extract(subject, '{_COMMAND}', 1) AS step,
        CAST(regexp_extract(subject, '{_COMMAND}', 2) AS INT) AS run, any_value(tool_kind) AS tool_kind,
        count(DISTINCT subject) AS commands, max(attempt) AS attempts, sum(tool_seconds) AS tool_seconds,
        sum(spark_seconds) AS spark_seconds
    FROM noetl_attempts WHERE kind = 'command'
    GROUP BY ALL
), counted AS (
    SELECT *, min(CASE WHEN event_type IN ('loop.started', 'loop.fanout.started') THEN position END) OVER one AS opened,
        min(CASE WHEN event_type IN ('loop.done', 'loop.fanin.completed') THEN position END) OVER one AS closed
    FROM e WHERE own AND loop_id IS NOT NULL
    WINDOW one AS (PARTITION BY {_KEYS}, loop_id)
), loops AS (
    SELECT {_KEYS}, loop_id,
        max(CASE event_type WHEN 'loop.started' THEN coalesce(m_mode, 'sequential') WHEN 'loop.fanout.started'
            THEN 'fanout' END) AS mode,
        coalesce(max(coalesce(m_collection_size, m_total_shards)) FILTER (
            WHERE event_type IN ('loop.started', 'loop.fanout.started')
        ), max(total)) AS rows,
        coalesce(sum(CASE
            WHEN event_type = 'frame.committed' THEN coalesce(m_row_count, 0) - coalesce(m_failed_count, 0)
            WHEN event_type = 'loop.shard.done' THEN 1
            WHEN event_type = 'command.completed' AND frame_id IS NULL AND stage_id IS NULL THEN 1 END), 0) AS rows_done,
        coalesce(sum(CASE
            WHEN event_type = 'frame.committed' THEN coalesce(m_failed_count, 0)
            WHEN event_type = 'frame.failed' THEN coalesce(m_row_count, 1)
            WHEN event_type = 'loop.shard.failed' THEN 1
            WHEN event_type = 'command.failed' AND frame_id IS NULL AND stage_id IS NULL THEN 1 END), 0) AS rows_failed
    FROM counted WHERE opened IS NOT NULL AND position >= opened AND (closed IS NULL OR position <= closed)
    GROUP BY {_KEYS}, loop_id
)
SELECT ended.*, commands.tool_kind, coalesce(commands.commands, 0) AS commands,
    coalesce(commands.attempts, 0) AS attempts, commands.tool_seconds, commands.spark_seconds,
    loops.mode, loops.rows, loops.rows_done, loops.rows_failed,
    coalesce(left_at, CASE WHEN first_type = 'step.skipped' THEN started_at END, execution_ended_at) AS ended_at,
    CASE WHEN first_type = 'step.skipped' THEN 'skipped' WHEN left_as IS NOT NULL THEN left_as
         WHEN execution_ended_at IS NOT NULL THEN 'stopped' ELSE 'running' END AS status,
    {
    seconds_between(
        "started_at",
        "coalesce(left_at, CASE WHEN first_type = 'step.skipped' THEN started_at END, execution_ended_at)",
    )
} AS seconds
FROM ended LEFT JOIN commands USING ({_KEYS}, step, run) LEFT JOIN loops USING ({_KEYS}, loop_id)
"""  # noqa: S608 - ours

STEPS: Final = Fact(
    name="noetl_steps",
    sentence="One row for each activation of a step.",
    columns=columns(
        *OWNER,
        "execution_id bigint: The execution.",
        "step string: The step.",
        "run int: The how-manieth activation of the step, from 1.",
        "status string: `running`, `completed`, `failed`, `skipped`, `cancelled` or `stopped` (its execution ended first).",
        "tool_kind string: The kind of tool it uses.",
        "commands int: Commands that were worked on; a loop has one for each slot.",
        "attempts int: The most attempts one of them took.",
        "mode string: How its loop runs; none for a step without one.",
        "loop_id bigint: Its loop.",
        "stage_id bigint: Its stage.",
        "rows bigint: Rows, or of a fan-out shards, of its loop.",
        "rows_done bigint: Those that ended well.",
        "rows_failed bigint: Those that failed.",
        "tool_seconds double: How long its tools worked.",
        "spark_seconds double: How long Spark worked for it.",
        "error string: Why it failed or was skipped.",
        "started_at timestamp: When it was entered.",
        "ended_at timestamp: When it was left.",
        "seconds double: From entering to leaving.",
        EXECUTION_DAY,
    ),
    query=_QUERY,
)


DISPATCHED: Final = sql_texts(types_of_attempts("begun", at="frame"))
COMMITTED: Final = sql_texts(types_of_attempts("completed", at="frame"))
FAILED: Final = sql_texts(types_of_attempts("failed", at="frame"))
ABANDONED: Final = sql_texts(types_of_attempts("abandoned", at="frame"))
ATTEMPT_FAILED: Final = sql_texts(types_of_attempts("attempt_failed", at="frame"))
_ENDED: Final = f"{COMMITTED}, {FAILED}"

_FRAMES_QUERY: Final = f"""
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
    query=_FRAMES_QUERY,
)
