"""What a DAG's stream is told: a plan or a switch goes in, the drafts of one append come out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from noetl.kernel.ledger.transition import Append
from noetl.language.dag.model import Dag, Job
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Draft
from noetl.model.ids import organization_root_id
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, Stream, execution_stream
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.deploy.values import BundleFacts, DatasetPlan, DeployPlan, JobPlan, Registration


class DagEvents:
    """Makes the drafts of one process."""

    def __init__(self, mint: Callable[[], int], producer: str) -> None:
        self._mint = mint
        self._producer = producer

    def requested(self, scope: Scope, execution_id: int, plan: DeployPlan, requested_by: str) -> Append:
        """Say that somebody asked for a deploy, which is a run of its own."""
        stream = execution_stream(scope, execution_id)
        meta = {
            "path": f"dag/{plan.dag}",
            "kind": "deploy",
            "dag": plan.dag,
            "dag_version_id": plan.dag_version_id,
            "requested_by": requested_by,
        }
        draft = self._draft(
            scope, stream, execution_id, "execution.requested", meta, idempotency_key=f"deploy:{execution_id}"
        )
        return Append(stream, [draft], 0)

    def deployed(
        self,
        scope: Scope,
        execution_id: int,
        facts: BundleFacts,
        plan: DeployPlan,
        bundle: PayloadRef,
        registrations: Collection[Registration],
        known_generations: Collection[str],
        expected_version: int,
        by: str,
    ) -> Append:
        """Say all of a new version: its jobs, its datasets under their names, and the generations that begin."""
        stream = identity.dag_stream(scope, plan.dag)
        version = {
            "dag_version_id": plan.dag_version_id,
            "dag": plan.dag,
            "bundle_digest": facts.bundle_digest,
            "code_digest": facts.code_digest,
            "yaml_hash": facts.yaml_hash,
        }
        pointers = {"pointers": plan.pointers, "publish": plan.publish, "built": list(plan.built)}
        told: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            ("dag.version_created", version, {"context": pointers, "payload_ref": bundle})
        ]
        told += [_job(facts.dag, plan, job) for job in plan.jobs]
        told += [("dataset.registered", msgspec.to_builtins(one), {}) for one in registrations]
        generations = {job.name: job for job in plan.jobs}
        told += [
            _generation(scope, dataset, generations[dataset.job])
            for dataset in plan.datasets
            if dataset.new not in known_generations
        ]
        drafts = [
            self._draft(scope, stream, execution_id, kind, {**meta, "by": by}, **fields) for kind, meta, fields in told
        ]
        return Append(stream, drafts, expected_version)

    def marked(
        self,
        scope: Scope,
        dag: str,
        execution_id: int,
        kind: str,
        dag_version_id: str,
        expected_version: int,
        by: str,
        error: str | None = None,
    ) -> Append:
        """Say how the build of a version came out."""
        stream = identity.dag_stream(scope, dag)
        meta = {"dag_version_id": dag_version_id, "by": by}
        draft = self._draft(scope, stream, execution_id, kind, meta, error=error)
        return Append(stream, [draft], expected_version)

    def switched(
        self,
        scope: Scope,
        dag: str,
        kind: str,
        dag_version_id: str,
        previous: str | None,
        renamed: Collection[Registration],
        expected_version: int,
        by: str,
    ) -> Append:
        """Say that another version serves readers from now on, and the names that change with it.

        This stands under the organization's own id, whose events are never dropped: what was served when can always
        be told.
        """
        stream = identity.dag_stream(scope, dag)
        root = organization_root_id(scope.tenant_id, scope.organization_id)
        meta = {"dag_version_id": dag_version_id, "previous": previous}
        told = [(kind, meta), *(("dataset.registered", msgspec.to_builtins(one)) for one in renamed)]
        drafts = [self._draft(scope, stream, root, one, {**meta, "by": by}) for one, meta in told]
        return Append(stream, drafts, expected_version)

    def _draft(
        self, scope: Scope, stream: Stream, execution_id: int, kind: str, meta: Mapping[str, Any], **fields: Any
    ) -> Draft:
        known = BY_NAME[kind]
        return Draft(
            self._mint(),
            scope.tenant_id,
            scope.organization_id,
            execution_id,
            stream.stream_id,
            known.aggregate,
            stream.stream_id,
            kind,
            known.schema_name,
            known.version,
            datetime.now(UTC),
            self._producer,
            meta=dict(meta),
            **fields,
        )


def _job(dag: Dag, plan: DeployPlan, planned: JobPlan) -> tuple[str, dict[str, Any], dict[str, Any]]:
    job: Job = dag.job(planned.name)
    meta = {
        "job_id": identity.job_id(plan.dag_version_id, job.name),
        "dag_version_id": plan.dag_version_id,
        "dag": plan.dag,
        "generation": planned.generation,
        "job_hash": planned.job_hash,
        "runtime": job.runtime,
        "operator": job.operator,
        "activation": job.activation,
        "update_strategy": job.update_strategy,
        "execution_strategy": job.execution_strategy,
        "max_concurrency": 1 if _takes_turns(job, planned) else job.max_concurrency,
        "max_attempts": job.max_attempts,
        "timeout_seconds": job.timeout_seconds,
        "lease_seconds": job.heartbeat_timeout_seconds,
    }
    context = {
        "definition": msgspec.to_builtins(job),
        "inputs": msgspec.to_builtins(planned.inputs),
        "outputs": list(planned.outputs),
    }
    return "job.registered", meta, {"node_name": job.name, "context": context}


def _takes_turns(job: Job, planned: JobPlan) -> bool:
    """Whether each task replaces whatever partitions there are: two at once would not know of each other's."""
    whole = not any(one.trigger and set(job.partition_by) <= set(one.partition_by) for one in planned.inputs)
    replaces = job.execution_strategy == "PerPartition" and job.update_strategy == "replace"
    return bool(job.partition_by) and replaces and whole


def _generation(scope: Scope, dataset: DatasetPlan, job: JobPlan) -> tuple[str, dict[str, Any], dict[str, Any]]:
    meta = {
        "dataset_uuid": dataset.dataset_uuid,
        "dataset_version": dataset.new,
        "generation": job.generation,
        "config_hash": job.job_hash,
        "storage_location": identity.storage_location(scope, dataset.dataset_uuid, dataset.new),
    }
    fields = {"node_name": job.name, "context": {"partition_by": list(dataset.partition_by)}}
    return "dataset.generation_created", meta, fields
