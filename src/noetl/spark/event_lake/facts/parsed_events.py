"""The lake's events go in, the view `e` comes out: the few fields that facts need, read from their JSON once."""

from __future__ import annotations

from typing import Final

from noetl.model.catalogue import ENDING
from noetl.model.ids import EPOCH_MS, NODE_BITS, ROOT_ID_LIMIT, SEQUENCE_BITS

_META: Final = """
attempt INT, worker STRING, row_count BIGINT, failed_count BIGINT, frame_index INT, duration_ms DOUBLE, run INT,
path STRING, version INT, requested_by STRING, rerun_of STRING, kind STRING, tool_kind STRING, swallowed INT,
reason STRING, error_kind STRING, as_task STRING, dag STRING, job STRING, output INT, dag_version_id STRING,
generation STRING, partition_key STRING, runtime STRING, rows BIGINT, bytes BIGINT, files INT, dataset_uuid STRING,
name STRING, published BOOLEAN, update STRING, task_id STRING, application_id STRING, engine STRING,
milliseconds DOUBLE, collection_size BIGINT, total_shards BIGINT, mode STRING, child_execution_id STRING,
rows_added BIGINT, bytes_added BIGINT, asked_by STRING, set_by STRING, by STRING, user_id STRING
"""
_META_NAMES: Final = tuple(field.split()[0] for field in _META.split(","))
_METRICS: Final = "rows BIGINT, bytes BIGINT, seconds DOUBLE, batch INT, execution_id STRING"
_REFERENCE: Final = "sha256 STRING, bytes BIGINT, rows BIGINT"
_KEPT: Final = (
    "tenant_id, organization_id, execution_id, event_id, stream_id, stream_version, shard, position, event_type,"
    " event_time, ingest_time, aggregate_type, aggregate_id, producer, idempotency_key, parent_execution_id,"
    " catalog_id, node_name, status, stage_id, frame_id, loop_id, command_id, shard_id, current_index, error"
)


def listed(names: frozenset[str] | tuple[str, ...]) -> str:
    """Write names as a list of SQL texts."""
    return ", ".join(f"'{name}'" for name in sorted(names))


DAY_OF_EVENT: Final = (
    f"CASE WHEN execution_id >= {ROOT_ID_LIMIT} THEN"
    f" to_date(timestamp_millis(shiftright(execution_id, {NODE_BITS + SEQUENCE_BITS}) + {EPOCH_MS}))"
    " ELSE to_date(ingest_time) END"
)
"""An event's day: that of its execution, whose id tells it; of what belongs to no run, the day it was recorded."""

IN_OWN_EXECUTION: Final = (
    "(stream_id = concat('execution/', execution_id) OR startswith(stream_id, concat('execution/', execution_id, '/')))"
)


def parsed_events(source: str) -> str:
    """Return the query of the view `e` over a view with the lake's columns; fields of `meta` are columns `m_<field>`."""
    fields = ", ".join(f"m.{name} AS m_{name}" for name in _META_NAMES)
    return f"""
    SELECT * EXCEPT (m), {fields} FROM (
        SELECT {_KEPT}, {DAY_OF_EVENT} AS day, {IN_OWN_EXECUTION} AS own, meta,
            event_type IN ({listed(ENDING)}) AS ends,
            from_json(meta, '{_META}') AS m,
            CASE WHEN event_type = 'task.completed'
                 THEN from_json(get_json_object(context, '$.metrics'), '{_METRICS}') END AS metrics,
            CASE WHEN event_type = 'loop.done'
                 THEN CAST(get_json_object(result, '$.context.total') AS BIGINT) END AS total,
            from_json(payload_ref, '{_REFERENCE}') AS payload,
            from_json(fields_ref, '{_REFERENCE}') AS fields
        FROM {source}
    )
    """  # noqa: S608 - ours


def seconds_between(first: str, last: str) -> str:
    """Write the seconds between two times, to the microsecond."""
    return f"((unix_micros({last}) - unix_micros({first})) / 1e6)"
