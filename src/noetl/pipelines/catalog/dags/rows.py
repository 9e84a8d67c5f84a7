"""Versions and jobs of DAGs as they stand in the database: rows go in, values come out. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection
from noetl.language.dag.model import Job
from noetl.model.ids import Id64
from noetl.model.payload_ref import PayloadRef
from noetl.pipelines.plan.deploy.values import (
    DagState,
    InputPlan,
    StandingDataset,
    StandingJob,
    StandingVersion,
    VersionStatus,
)
from noetl.pipelines.plan.wanted_values import InputOf, JobView

VERSION: Final = (
    "v.dag_version_id::text AS dag_version_id, v.dag, v.bundle_digest, v.code_digest, v.yaml_hash, v.bundle_ref,"
    " v.pointers, v.publish, v.built, v.status, v.error, v.deploy_execution_id, v.created_at, v.ready_at, v.activated_at"
)
JOB: Final = (
    "j.job_id::text AS job_id, j.dag_version_id::text AS dag_version_id, j.dag, j.name,"
    " j.generation::text AS generation, j.job_hash, j.definition, j.inputs, j.output_datasets::text[] AS outputs"
)

_CURRENT = "SELECT dag_version_id::text FROM noetl.dag_current_version WHERE dag = $1"
_JOBS = f"SELECT {JOB} FROM noetl.job AS j WHERE j.dag_version_id = $1 ORDER BY j.name"  # noqa: S608 - constants
_VERSIONS = f"SELECT {VERSION} FROM noetl.dag_version AS v WHERE v.dag = $1 ORDER BY v.created_at DESC, 1"  # noqa: S608
_COMPLETE = (
    "SELECT DISTINCT j.generation::text FROM noetl.job AS j JOIN noetl.dag_version AS v"
    " USING (tenant_id, organization_id, dag_version_id) WHERE v.dag = $1 AND v.ready_at IS NOT NULL"
)
_GONE = """
SELECT r.generation::text FROM noetl.dataset AS d JOIN noetl.retired_generation AS r USING (dataset_uuid)
WHERE d.producer_dag = $1
UNION
SELECT p.dag_version_id::text FROM noetl.dataset AS d JOIN noetl.retired_generation AS r USING (dataset_uuid)
JOIN noetl.dag_version_dataset AS p ON p.dataset_version = r.dataset_version
WHERE d.producer_dag = $1
"""
_DATASETS = """
SELECT d.dataset_uuid::text AS dataset_uuid, d.name, d.producer_dag, d.producer_job, d.producer_output_index,
       d.published, coalesce(g.partition_by, '[]') AS partition_by,
       ARRAY(SELECT r.dag || '.' || r.name FROM noetl.job AS r
             JOIN noetl.dag_current_version AS c USING (tenant_id, organization_id, dag_version_id)
             WHERE d.dataset_uuid = ANY (r.input_datasets) AND r.dag <> d.producer_dag ORDER BY 1) AS readers
FROM noetl.dataset AS d
LEFT JOIN LATERAL (
    SELECT g.partition_by FROM noetl.dataset_version AS g
    LEFT JOIN noetl.dag_version_dataset AS p ON p.dataset_version = g.dataset_version AND p.dag_version_id =
        (SELECT c.dag_version_id FROM noetl.dag_current_version AS c WHERE c.dag = d.producer_dag)
    WHERE g.dataset_uuid = d.dataset_uuid ORDER BY (p.dag_version_id IS NULL), g.created_at DESC LIMIT 1
) AS g ON true
WHERE d.published OR d.producer_dag = $1
ORDER BY d.name
"""


class PublicDagVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody may see of a version of a DAG."""

    dag_version_id: str
    dag: str
    bundle_digest: str
    code_digest: str
    pointers: dict[str, str]
    publish: dict[str, str]
    built: tuple[str, ...]
    status: VersionStatus
    error: str | None
    deploy_execution_id: Id64
    created_at: datetime
    ready_at: datetime | None
    activated_at: datetime | None


class DagVersion(PublicDagVersion, frozen=True, kw_only=True):
    """One version of a DAG, and how far it is."""

    yaml_hash: str
    bundle_ref: PayloadRef


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job of one version of a DAG."""

    job_id: str
    dag_version_id: str
    dag: str
    name: str
    generation: str
    job_hash: str
    definition: Job
    inputs: tuple[InputPlan, ...]
    outputs: tuple[str, ...]

    @property
    def view(self) -> JobView:
        """What of it decides about its tasks."""
        return JobView(
            generation=self.generation,
            job_hash=self.job_hash,
            inputs=tuple(
                InputOf(
                    alias=one.alias, dataset_uuid=one.dataset_uuid, trigger=one.trigger, partition_by=one.partition_by
                )
                for one in self.inputs
            ),
            partition_by=self.definition.partition_by,
            wait=self.definition.wait,
            strategy=self.definition.execution_strategy,
        )


def version_of(row: Any) -> DagVersion:
    """Read a row selected with `VERSION`."""
    fields = dict(row)
    for name in ("bundle_ref", "pointers", "publish", "built"):
        fields[name] = orjson.loads(fields[name])
    return msgspec.convert(fields, DagVersion)


def job_of(row: Any) -> JobRow:
    """Read a row selected with `JOB`."""
    fields = dict(row)
    for name in ("definition", "inputs"):
        fields[name] = orjson.loads(fields[name])
    return msgspec.convert(fields, JobRow)


async def current_id(connection: Connection, dag: str) -> str | None:
    """Return the version that serves readers."""
    found: str | None = await connection.fetchval(_CURRENT, dag)
    return found


async def versions_of(connection: Connection, dag: str) -> list[DagVersion]:
    """Return all versions of a DAG, the newest first."""
    return [version_of(row) for row in await connection.fetch(_VERSIONS, dag)]


async def jobs_of(connection: Connection, dag_version_id: str) -> list[JobRow]:
    """Return the jobs of a version by name."""
    return [job_of(row) for row in await connection.fetch(_JOBS, dag_version_id)]


async def datasets_of(connection: Connection, dag: str) -> tuple[StandingDataset, ...]:
    """Return the datasets of a DAG and all that are published."""
    return tuple(
        StandingDataset(
            dataset_uuid=row["dataset_uuid"],
            name=row["name"],
            dag=row["producer_dag"],
            job=row["producer_job"],
            output=row["producer_output_index"],
            published=row["published"],
            partition_by=tuple(orjson.loads(row["partition_by"])),
            readers=tuple(row["readers"]),
        )
        for row in await connection.fetch(_DATASETS, dag)
    )


async def state_of(connection: Connection, dag: str) -> DagState:
    """Return what stands of a DAG, all but the files of its jobs."""
    versions = {version.dag_version_id: version for version in await versions_of(connection, dag)}
    serving = versions.get(await current_id(connection, dag) or "")
    current = None
    if serving is not None:
        jobs = await jobs_of(connection, serving.dag_version_id)
        current = StandingVersion(
            dag_version_id=serving.dag_version_id,
            jobs={
                job.name: StandingJob(job=job.definition, job_hash=job.job_hash, generation=job.generation)
                for job in jobs
            },
            pointers=serving.pointers,
            publish=serving.publish,
        )
    return DagState(
        current=current,
        versions={name: version.status for name, version in versions.items()},
        complete=frozenset(row[0] for row in await connection.fetch(_COMPLETE, dag)),
        datasets=await datasets_of(connection, dag),
        gone=frozenset(row[0] for row in await connection.fetch(_GONE, dag)),
    )


def with_files(state: DagState, files: Mapping[str, dict[str, str]]) -> DagState:
    """Add to the jobs of the current version which files they use."""
    if state.current is None:
        return state
    jobs = {name: msgspec.structs.replace(job, files=files.get(name, {})) for name, job in state.current.jobs.items()}
    return msgspec.structs.replace(state, current=msgspec.structs.replace(state.current, jobs=jobs))
