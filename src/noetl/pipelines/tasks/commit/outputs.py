"""What stands of a task's outputs, as far as a commit builds on it: partitions and schemas, each with its version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.dataset import Field
from noetl.model.payload_ref import PayloadRef
from noetl.model.task import InputPart, TaskGrant, TaskReport
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.pipelines.tasks.port import Place

_PARTS: Final = """
SELECT v.dataset_version::text AS dataset_version, v.partition_key, v.version, v.dropped, v.manifest_ref
FROM unnest($1::uuid[], $2::text[]) AS w (dataset_version, partition_key)
JOIN noetl.partition_version AS v USING (dataset_version, partition_key) WHERE v.current
"""
_SCHEMAS: Final = """
SELECT w.dataset_version::text AS dataset_version, coalesce(h.version, 0) AS version, coalesce(s.schema, '[]') AS schema
FROM unnest($1::uuid[]) AS w (dataset_version)
LEFT JOIN noetl.stream AS h ON h.stream_id = 'dataset/' || w.dataset_version::text
LEFT JOIN LATERAL (
    SELECT s.schema FROM noetl.dataset_schema AS s WHERE s.dataset_version = w.dataset_version
    ORDER BY s.version DESC LIMIT 1
) AS s ON true
"""

# Versions of inputs only grow: whoever read later ones of what both read, and no earlier one, knows more. Where that
# says nothing, the task that was made later does.
_NEWER: Final = """
SELECT made.task_id::text FROM unnest($2::uuid[], $3::text[]) AS w (dataset_version, partition_key)
JOIN noetl.partition_version AS v USING (dataset_version, partition_key)
JOIN noetl.task AS made ON made.task_id = v.task_id
JOIN noetl.task AS own ON own.task_id = $1 AND own.task_id <> made.task_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.input_version > b.input_version) AS later,
           count(*) FILTER (WHERE a.input_version < b.input_version) AS earlier
    FROM noetl.task_input AS a JOIN noetl.task_input AS b USING (input_dataset_version, input_partition_key)
    WHERE a.task_id = made.task_id AND b.task_id = own.task_id
) AS read
WHERE v.current AND read.earlier = 0 AND (read.later > 0 OR made.created_event_id > own.created_event_id) LIMIT 1
"""

# Rows that are split by their values may be in other partitions each time, so that not these but tasks are compared.
_NEWER_WHOLE: Final = """
SELECT made.task_id::text FROM noetl.task AS own
JOIN noetl.task AS made ON made.generation = own.generation AND made.partition_key = own.partition_key
    AND made.status IN ('Completed', 'Skipped') AND made.created_event_id > own.created_event_id
WHERE own.task_id = $1 AND NOT EXISTS (
    SELECT FROM noetl.task_input AS a JOIN noetl.task_input AS b USING (input_dataset_version, input_partition_key)
    WHERE a.task_id = made.task_id AND b.task_id = own.task_id AND a.input_version < b.input_version
) LIMIT 1
"""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Versions a commit expects."""

    parts: dict[Place, InputPart]
    gone: dict[Place, int]
    """Partitions that were dropped, with the version that says so."""
    schemas: dict[int, tuple[tuple[Field, ...], int | None]]
    """By output, with the version of its stream; None where only the schema is known."""

    @classmethod
    def of_grant(cls, grant: TaskGrant) -> Standing:
        """Return what a grant tells."""
        return cls(
            parts={(target.output, part.partition_key): part for target in grant.targets for part in target.parts},
            gone={},
            schemas={target.output: (target.schema, None if target.schema else 0) for target in grant.targets},
        )


async def read_standing(connection: Connection, facts: JobFacts, report: TaskReport) -> Standing:
    """Return what stands now of the partitions a report touches, and the schemas of all outputs."""
    outputs = {output.output: output.dataset_version for output in facts.outputs}
    places = sorted({(write.output, write.partition_key) for write in report.writes} | set(report.dropped))
    parts: dict[Place, InputPart] = {}
    gone: dict[Place, int] = {}
    by_name = {(outputs[output], key): (output, key) for output, key in places}
    rows = await connection.fetch(_PARTS, [outputs[output] for output, _ in places], [key for _, key in places])
    for row in rows:
        place = by_name[row["dataset_version"], row["partition_key"]]
        if row["dropped"]:
            gone[place] = row["version"]
        else:
            parts[place] = InputPart(
                partition_key=row["partition_key"], version=row["version"], manifest=_ref(row["manifest_ref"])
            )
    schemas: dict[int, tuple[tuple[Field, ...], int | None]] = dict.fromkeys(outputs, ((), 0))
    named = {generation: output for output, generation in outputs.items()}
    for row in await connection.fetch(_SCHEMAS, list(named)):
        columns = tuple(Field(*column) for column in orjson.loads(row["schema"]))
        schemas[named[row["dataset_version"]]] = (columns, row["version"])
    return Standing(parts=parts, gone=gone, schemas=schemas)


async def read_newer(connection: Connection, grant: TaskGrant, places: Sequence[Place]) -> str | None:
    """Return the task that made one of these partitions of what came later than the inputs of this one; None if none."""
    outputs = {target.output: target.dataset_version for target in grant.targets}
    asked = [[outputs[output] for output, _ in places], [key for _, key in places]]
    found: str | None = await connection.fetchval(_NEWER, grant.lease.task_id, *asked)
    return found


async def read_newer_whole(connection: Connection, grant: TaskGrant) -> str | None:
    """Return a task that did the same whole work of what came later than the inputs of this one; None if none did."""
    found: str | None = await connection.fetchval(_NEWER_WHOLE, grant.lease.task_id)
    return found


def _ref(text: str) -> PayloadRef:
    return msgspec.convert(orjson.loads(text), PayloadRef)
