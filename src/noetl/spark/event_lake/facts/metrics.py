"""The metric set of executions: the figures by which one way to run the same playbook is compared with another."""

from __future__ import annotations

from typing import Final

from noetl.spark.event_lake.facts.fact import EXECUTION_DAY, OWNER, Fact, columns
from noetl.spark.event_lake.facts.frames import DISPATCHED
from noetl.spark.event_lake.facts.parsing import seconds_between

_KEYS: Final = "tenant_id, organization_id, execution_id"

_QUERY: Final = f"""
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
    query=_QUERY,
)
