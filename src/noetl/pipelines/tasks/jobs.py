"""Jobs of DAG versions with all that their tasks need: read once per process, since a registered job never changes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.language.dag.model import Job
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.plan.wanted_values import InputOf, JobView

_KEPT: Final = 2048

_JOB: Final = """
SELECT j.job_id::text AS job_id, j.dag_version_id::text AS dag_version_id, j.dag, j.name, j.generation::text AS generation,
       j.job_hash, j.max_attempts, j.lease_seconds, j.definition, j.inputs, v.bundle_ref, v.code_digest
FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
WHERE j.job_id = $1
"""
_OUTPUTS: Final = """
SELECT o.place - 1 AS output, o.dataset_uuid::text AS dataset_uuid, p.dataset_version::text AS dataset_version, d.name,
       g.storage_location, g.partition_by
FROM noetl.job AS j CROSS JOIN LATERAL unnest(j.output_datasets) WITH ORDINALITY AS o (dataset_uuid, place)
JOIN noetl.dag_version_dataset AS p ON p.dag_version_id = j.dag_version_id AND p.dataset_uuid = o.dataset_uuid
JOIN noetl.dataset AS d ON d.dataset_uuid = o.dataset_uuid
JOIN noetl.dataset_version AS g ON g.dataset_version = p.dataset_version
WHERE j.job_id = $1 ORDER BY o.place
"""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset a job builds, in the job's own generation."""

    output: int
    dataset_uuid: str
    dataset_version: str
    name: str
    location: str
    partition_by: tuple[str, ...]


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One job of one version of a DAG."""

    job_id: str
    dag_version_id: str
    dag: str
    name: str
    generation: str
    job_hash: str
    max_attempts: int
    lease_seconds: float
    definition: Job
    wheres: dict[str, dict[str, Any]]
    """What of each input is read, by alias."""
    view: JobView
    outputs: tuple[Output, ...]
    bundle: PayloadRef
    code_digest: str


class Jobs:
    """The jobs this process has met."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[tuple[Scope, str], JobFacts] = OrderedDict()

    def known(self, scope: Scope, job_id: str) -> JobFacts | None:
        """Return a job that was read before."""
        return self._kept.get((scope, job_id))

    async def get(self, scope: Scope, job_id: str, connection: Connection | None = None) -> JobFacts:
        """Return a job by its id, reading it the first time."""
        found = self._kept.get((scope, job_id))
        if found is not None:
            return found
        if connection is not None:
            found = await _read(connection, job_id)
        else:
            async with self._database.transaction(scope) as connection:
                found = await _read(connection, job_id)
        self._kept[scope, job_id] = found
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found


async def _read(connection: Connection, job_id: str) -> JobFacts:
    row = await connection.fetchrow(_JOB, job_id)
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    outputs = await connection.fetch(_OUTPUTS, job_id)
    definition = msgspec.convert(orjson.loads(row["definition"]), Job)
    wiring = orjson.loads(row["inputs"])
    view = JobView(
        generation=row["generation"],
        job_hash=row["job_hash"],
        inputs=tuple(
            InputOf(
                alias=one["alias"],
                dataset_uuid=one["dataset_uuid"],
                trigger=one.get("trigger", True),
                partition_by=tuple(one.get("partition_by") or ()),
            )
            for one in wiring
        ),
        partition_by=definition.partition_by,
        wait=definition.wait,
        strategy=definition.execution_strategy,
    )
    return JobFacts(
        job_id=row["job_id"],
        dag_version_id=row["dag_version_id"],
        dag=row["dag"],
        name=row["name"],
        generation=row["generation"],
        job_hash=row["job_hash"],
        max_attempts=row["max_attempts"],
        lease_seconds=float(row["lease_seconds"]),
        definition=definition,
        wheres={one["alias"]: one.get("where") or {} for one in wiring},
        view=view,
        outputs=tuple(
            Output(
                output=one["output"],
                dataset_uuid=one["dataset_uuid"],
                dataset_version=one["dataset_version"],
                name=one["name"],
                location=one["storage_location"],
                partition_by=tuple(orjson.loads(one["partition_by"])),
            )
            for one in outputs
        ),
        bundle=msgspec.convert(orjson.loads(row["bundle_ref"]), PayloadRef),
        code_digest=row["code_digest"],
    )
