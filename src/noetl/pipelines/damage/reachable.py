"""Which versions of partitions somebody can still read: those of any generation that retention still keeps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
import orjson

from noetl.ledger.database import Connection
from noetl.model.payload_ref import PayloadRef
from noetl.spark.event_lake.definition import DAG as EVENTS
from noetl.spark.event_lake.facts.definition import DAG as FACTS

_REACHABLE: Final = """
SELECT d.name AS dataset, d.producer_dag AS dag, d.producer_job AS job, v.dataset_version::text AS dataset_version,
       v.partition_key, v.version, v.current, v.task_id::text AS task_id, v.manifest_ref,
       c.dag_version_id IS NOT NULL AS serving, j.update_strategy, j.definition -> 'source' ->> 'kind' AS source
FROM noetl.partition_version AS v
JOIN noetl.dataset AS d USING (tenant_id, organization_id, dataset_uuid)
LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
LEFT JOIN noetl.trimmed_version AS t USING (tenant_id, organization_id, dataset_version, partition_key, version)
LEFT JOIN noetl.dag_current_version AS c ON c.dag = d.producer_dag AND EXISTS (
    SELECT FROM noetl.dag_version_dataset AS p
    WHERE p.dag_version_id = c.dag_version_id AND p.dataset_version = v.dataset_version)
LEFT JOIN noetl.job AS j ON j.dag_version_id = c.dag_version_id AND j.name = d.producer_job
WHERE NOT v.dropped AND v.manifest_ref IS NOT NULL AND r.purged_at IS NULL AND t.version IS NULL
  AND ($1::text[] IS NULL OR v.dataset_version::text = ANY ($1))
  AND NOT (d.producer_dag = ANY ($2) AND EXISTS (
    SELECT FROM noetl.partition_version AS later
    WHERE later.dataset_version = v.dataset_version AND later.partition_key = v.partition_key
      AND later.version > v.version AND later.dropped))
ORDER BY d.name, v.dataset_version, v.partition_key, v.version DESC
"""
WRITTEN_ANEW: Final = (EVENTS, FACTS)
"""No task builds these, and whoever drops them removes their files at once: they are written anew from the ledger."""


class Reachable(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a partition that a reader, a rollback or an as-of can ask for."""

    dataset: str
    dag: str
    job: str
    dataset_version: str
    partition_key: str
    version: int
    current: bool
    """Whether it is the last of its partition."""
    serving: bool
    """Whether readers have its generation now."""
    update_strategy: str | None
    """How the job that serves writes; none where its generation does not serve."""
    source: str | None
    """What starts that job, where it is a source that says so."""
    task_id: str
    manifest: PayloadRef


async def reachable_versions(connection: Connection, generations: Collection[str] | None) -> list[Reachable]:
    """Return them partition by partition, the newest first; of some generations alone, or of all."""
    chosen = None if generations is None else sorted(generations)
    rows = await connection.fetch(_REACHABLE, chosen, list(WRITTEN_ANEW))
    return [
        Reachable(
            **{
                **{name: value for name, value in row.items() if name != "manifest_ref"},
                "manifest": msgspec.convert(orjson.loads(row["manifest_ref"]), PayloadRef),
            }
        )
        for row in rows
    ]
