"""The fact of attempts: who worked on which command, frame or task, for how long, and what came of it.

Seconds are told by kind only where somebody measured them: the worker for its tools, the driver for Spark.
"""

from __future__ import annotations

from typing import Final

from noetl.model.catalogue.rows import sql_texts, types_of_attempts
from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.parsed_events import seconds_between

_ENDINGS: Final = {
    "completed": types_of_attempts("completed"),
    "failed": types_of_attempts("failed", "attempt_failed"),
    "abandoned": types_of_attempts("abandoned"),
    "returned": types_of_attempts("returned"),
    "skipped": types_of_attempts("skipped"),
    "cancelled": types_of_attempts("cancelled"),
}
_ENDED: Final = ", ".join(f"'{name}'" for names in _ENDINGS.values() for name in names)
_OUTCOME: Final = " ".join(
    f"WHEN event_type IN ({', '.join(repr(name) for name in names)}) THEN '{outcome}'"
    for outcome, names in _ENDINGS.items()
)
_BEGUN: Final = (
    f"(event_type IN ({sql_texts(types_of_attempts('begun'))})"
    " OR (event_type = 'command.issued' AND m_worker IS NOT NULL))"
)
_ONE: Final = "tenant_id, organization_id, execution_id, kind, subject"

_QUERY: Final = f"""
WITH about AS (
    SELECT *,
        CASE WHEN startswith(event_type, 'task.') THEN 'task' WHEN frame_id IS NOT NULL THEN 'frame' ELSE 'command' END
            AS kind,
        CASE WHEN startswith(event_type, 'task.') THEN substring(stream_id, 6) WHEN frame_id IS NOT NULL
             THEN CAST(frame_id AS STRING) ELSE command_id END AS subject,
        {_BEGUN} AS begins, event_type IN ({_ENDED}) AS finishes
    FROM e
    WHERE (startswith(event_type, 'task.') AND startswith(stream_id, 'task/'))
       OR (own AND (frame_id IS NOT NULL OR startswith(event_type, 'command.')))
), numbered AS (
    -- What ends a command from outside tells no attempt: it ends the one that was begun last.
    SELECT *,
        coalesce(m_attempt, max(CASE WHEN begins THEN m_attempt END) OVER (PARTITION BY {_ONE} ORDER BY position))
            AS attempt,
        max(node_name) OVER whole AS step, max(loop_id) OVER whole AS loop, max(stage_id) OVER whole AS stage,
        max(m_tool_kind) OVER whole AS tool_kind, max(m_runtime) OVER whole AS runtime, max(m_dag) OVER whole AS dag,
        min(CASE WHEN event_type IN ('command.issued', 'task.created') THEN event_time END) OVER whole AS available_at
    FROM about
    WINDOW whole AS (PARTITION BY {_ONE})
), told AS (
    SELECT {_ONE}, attempt, day,
        any_value(step) AS step, any_value(loop) AS loop_id, any_value(stage) AS stage_id,
        any_value(tool_kind) AS tool_kind, any_value(runtime) AS runtime, any_value(dag) AS dag,
        any_value(available_at) AS available_at,
        min(event_time) FILTER (WHERE begins) AS started_at,
        min_by(m_worker, position) FILTER (WHERE begins) AS worker,
        min_by(event_time, position) FILTER (WHERE finishes) AS finished_at,
        min_by(CASE {_OUTCOME} END, position) FILTER (WHERE finishes) AS outcome,
        min_by(error, position) FILTER (WHERE finishes) AS error,
        min_by(m_error_kind, position) FILTER (WHERE finishes) AS error_kind,
        min_by(m_row_count, position) FILTER (WHERE m_row_count IS NOT NULL) AS rows,
        min_by(m_duration_ms, position) FILTER (WHERE finishes) / 1000 AS measured,
        min_by(metrics, position) FILTER (WHERE finishes) AS metrics,
        min(event_time) FILTER (WHERE event_type IN ('command.started', 'task.started')) AS on_spark_at,
        any_value(m_application_id) FILTER (WHERE m_application_id IS NOT NULL) AS application_id
    FROM numbered WHERE attempt >= 1 AND (begins OR finishes OR event_type IN ('command.started', 'task.started'))
    GROUP BY {_ONE}, attempt, day
    HAVING min(event_time) FILTER (WHERE begins) IS NOT NULL
), closed AS (
    SELECT told.*, coalesce(finished_at, CASE WHEN told.kind <> 'task' THEN x.ended_at END) AS ended_at,
        coalesce(outcome, CASE WHEN told.kind <> 'task' AND x.ended_at IS NOT NULL THEN 'stopped' ELSE 'running' END)
            AS result
    FROM told LEFT JOIN (
        SELECT tenant_id, organization_id, execution_id, ended_at FROM noetl_executions
    ) AS x USING (tenant_id, organization_id, execution_id)
), timed AS (
    SELECT *, {seconds_between("started_at", "ended_at")} AS held_seconds,
        CASE WHEN metrics.execution_id IS NOT NULL THEN CAST(metrics.execution_id AS BIGINT) END AS ran_execution_id,
        CASE WHEN kind = 'frame' THEN NULL
             WHEN kind = 'command' AND on_spark_at IS NULL THEN measured END AS tool_seconds,
        CASE WHEN kind = 'task' AND metrics.seconds IS NOT NULL THEN metrics.seconds / coalesce(metrics.batch, 1)
             WHEN on_spark_at IS NULL THEN NULL
             WHEN kind = 'command' AND measured IS NOT NULL THEN measured
             ELSE {seconds_between("on_spark_at", "ended_at")} END AS spark_seconds
    FROM closed
)
SELECT *,
    CASE WHEN tool_seconds IS NOT NULL OR spark_seconds IS NOT NULL THEN greatest(0D,
        held_seconds - coalesce(tool_seconds, 0) - coalesce(spark_seconds, 0) * coalesce(metrics.batch, 1)
    ) / coalesce(metrics.batch, 1) END AS engine_seconds
FROM timed
"""  # noqa: S608 - ours

ATTEMPTS: Final = Fact(
    name="noetl_attempts",
    sentence="One row for each attempt at a command, a frame or a task.",
    columns=columns(
        *OWNER,
        "execution_id bigint: The execution.",
        "kind string: `command`, `frame` or `task`.",
        "subject string: The id of the command, frame or task.",
        "attempt int: The how-manieth, from 1.",
        "step string: The step, or of a task the job.",
        "dag string: The DAG of a task.",
        "loop_id bigint: The loop, for work within one.",
        "stage_id bigint: The stage, for work within one.",
        "tool_kind string: The kind of tool a command uses.",
        "runtime string: Where a task runs.",
        "worker string: Who worked.",
        "application_id string: The application Spark ran it under.",
        "result string: `completed`, `failed`, `abandoned` (its worker was lost), `returned` (its worker handed it back),"
        " `skipped`, `cancelled`, `stopped` (its execution ended first) or `running`.",
        "error string: Why it failed.",
        "error_kind string: The word for why.",
        "rows bigint: Rows of a frame.",
        "available_at timestamp: When the command or task was made available.",
        "started_at timestamp: When the lease was taken.",
        "ended_at timestamp: When the lease was given back or lost.",
        "held_seconds double: How long the lease was held.",
        "tool_seconds double: How long tools worked, as the worker measured it; none for frames, which their command"
        " counts, nor where nobody could tell any more.",
        "spark_seconds double: How long Spark worked, as the driver measured it, its share where several tasks ran as one"
        " Spark job; of an attempt that did not complete, from its start on Spark to its end.",
        "engine_seconds double: What is left of the time the lease was held: fetching, storing, committing, waiting.",
        "ran_execution_id bigint: The execution a task ran; its time is told there.",
        EXECUTION_DAY,
    ),
    query=_QUERY,
)
