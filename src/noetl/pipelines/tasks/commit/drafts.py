"""What a commit says: a task's end, its partitions, their schema and its operator's state, as appends to their streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.dispatch.drafts import Drafting
from noetl.kernel.ledger.transition import Append
from noetl.model.dataset import Manifest
from noetl.model.event import Draft
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskReport, TaskTarget
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_values import WantedInput, consumed
from noetl.pipelines.tasks.commit.lineage import LineageChange
from noetl.pipelines.tasks.commit.writes import SchemaChange
from noetl.pipelines.tasks.failed_attempts import checks_told
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.pipelines.tasks.port import Place

LISTED_BYTES: Final = 24 * 1024
"""Outputs of a task up to this size are listed by partition in its last event; beyond it they are summed up."""


class CommitDrafts:
    """Makes the appends of commits."""

    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting

    def committed(self, scope: Scope, grant: TaskGrant, place: Place, manifest: Manifest, ref: PayloadRef) -> Append:
        """Say what a reader sees of a partition from now on."""
        target = next(one for one in grant.targets if one.output == place[0])
        stream = identity.partition_stream(scope, target.dataset_version, place[1])
        brought = manifest.added_since(manifest.version - 1)
        meta = {
            "dataset_uuid": target.dataset_uuid,
            "dataset_version": target.dataset_version,
            "partition_key": place[1],
            "version": manifest.version,
            "task_id": grant.lease.task_id,
            "attempt": grant.lease.attempt,
            "rows": manifest.row_count,
            "bytes": manifest.bytes,
            "files": len(manifest.files),
            "schema_hash": manifest.schema_hash,
            "content_digest": manifest.content_digest,
            "update": target.update_strategy,
            "rows_added": sum(entry.rows for entry in brought),
            "bytes_added": sum(entry.bytes for entry in brought),
        }
        draft = self._drafting.one(
            scope, stream, grant.execution_id, "partition.committed", stream.stream_id, node_name=grant.job,
            payload_ref=ref, meta=meta,
        )  # fmt: skip
        return Append(stream, [draft], manifest.version - 1)

    def dropped(self, scope: Scope, grant: TaskGrant, place: Place, version: int) -> Append:
        """Say that a partition is gone."""
        target = next(one for one in grant.targets if one.output == place[0])
        stream = identity.partition_stream(scope, target.dataset_version, place[1])
        meta = {
            "dataset_uuid": target.dataset_uuid,
            "dataset_version": target.dataset_version,
            "partition_key": place[1],
            "version": version + 1,
            "task_id": grant.lease.task_id,
        }
        draft = self._drafting.one(
            scope, stream, grant.execution_id, "partition.dropped", stream.stream_id, node_name=grant.job, meta=meta
        )
        return Append(stream, [draft], version)

    def datasets(
        self, scope: Scope, grant: TaskGrant, schemas: Iterable[SchemaChange], lineages: Iterable[LineageChange]
    ) -> list[Append]:
        """Say what columns generations have from now on, and where they come from."""
        said: dict[str, Append] = {}
        drafts = [(change.version, self._schema(scope, grant, change)) for change in schemas]
        drafts += [(change.version, self._lineage(scope, grant, change)) for change in lineages]
        for version, draft in drafts:
            append = said.setdefault(draft.stream_id, Append(draft.stream, [], version))
            said[draft.stream_id] = append._replace(drafts=[*append.drafts, draft])
        return list(said.values())

    def _lineage(self, scope: Scope, grant: TaskGrant, change: LineageChange) -> Draft:
        target, lineage = change.target, change.lineage
        stream = identity.dataset_stream(scope, target.dataset_version)
        meta = {
            "dataset_uuid": target.dataset_uuid,
            "dataset_version": target.dataset_version,
            "lineage_hash": lineage.digest,
            "how": lineage.how,
            "version": change.number,
        }
        read = ("alias", "dataset_uuid", "dataset_version")
        context: dict[str, Any] = {"inputs": [{name: getattr(one, name) for name in read} for one in grant.inputs]}
        if lineage.reason is not None:
            context["reason"] = lineage.reason
        if change.ref is None:
            context["columns"] = msgspec.to_builtins(lineage.edges)
        return self._drafting.one(
            scope, stream, grant.execution_id, "dataset.lineage_set", stream.stream_id, node_name=grant.job,
            meta=meta, context=context, payload_ref=change.ref,
        )  # fmt: skip

    def _schema(self, scope: Scope, grant: TaskGrant, change: SchemaChange) -> Draft:
        stream = identity.dataset_stream(scope, change.target.dataset_version)
        meta = {
            "dataset_uuid": change.target.dataset_uuid,
            "dataset_version": change.target.dataset_version,
            "schema_hash": change.schema_hash,
            "change": change.change,
        }
        return self._drafting.one(
            scope, stream, grant.execution_id, "dataset.schema_set", stream.stream_id, node_name=grant.job, meta=meta,
            context={"schema": [[one.name, one.type, one.nullable] for one in change.schema]},
        )  # fmt: skip

    def completed(
        self,
        scope: Scope,
        facts: JobFacts,
        grant: TaskGrant,
        report: TaskReport,
        stored: Mapping[Place, tuple[Manifest, PayloadRef]],
    ) -> Append:
        """Say that a task is done: what it built, how far it has consumed its inputs, how its checks came out."""
        context: dict[str, Any] = {"outputs": _outputs(grant, stored), "cursors": _cursors(facts, grant)}
        context |= checks_told(report.checks)
        if report.metrics:
            context["metrics"] = report.metrics
        manifests = [manifest for manifest, _ in stored.values()]
        meta = {
            "attempt": grant.lease.attempt,
            "rows": sum(one.row_count for one in manifests),
            "bytes": sum(one.bytes for one in manifests),
        }
        stream = identity.task_stream(scope, grant.lease.task_id)
        draft = self._drafting.one(
            scope, stream, grant.execution_id, "task.completed", stream.stream_id, node_name=grant.job,
            payload_ref=report.logs, meta=meta, context={name: value for name, value in context.items() if value},
        )  # fmt: skip
        return Append(stream, [draft])

    def processed(self, scope: Scope, generation: str, grant: TaskGrant) -> Append:
        """Say that a task which an invalidation asked for is done."""
        stream = identity.invalidation_stream(scope, grant.execution_id)
        meta = {"generation": generation, "task_id": grant.lease.task_id}
        draft = self._drafting.one(
            scope,
            stream,
            grant.execution_id,
            "invalidation.processed",
            stream.stream_id,
            node_name=grant.job,
            meta=meta,
        )
        return Append(stream, [draft])

    def state(self, scope: Scope, generation: str, grant: TaskGrant, state: dict[str, Any], version: int) -> Append:
        """Say what a job's operator keeps."""
        stream = identity.state_stream(scope, generation)
        draft = self._drafting.one(
            scope, stream, grant.execution_id, "job.state_saved", stream.stream_id, node_name=grant.job,
            meta={"generation": generation, "state_key": "default"}, context={"state": state},
        )  # fmt: skip
        return Append(stream, [draft], version)


def _outputs(grant: TaskGrant, stored: Mapping[Place, tuple[Manifest, PayloadRef]]) -> list[dict[str, Any]]:
    targets = {target.output: target for target in grant.targets}
    listed = [
        {
            "output": output,
            "dataset_uuid": targets[output].dataset_uuid,
            "dataset_version": targets[output].dataset_version,
            "partition_key": key,
            "version": manifest.version,
            "rows": manifest.row_count,
            "bytes": manifest.bytes,
        }
        for (output, key), (manifest, _) in stored.items()
    ]
    if len(orjson.dumps(listed)) <= LISTED_BYTES:
        return listed
    return [_summed(target, stored) for target in grant.targets]


def _summed(target: TaskTarget, stored: Mapping[Place, tuple[Manifest, PayloadRef]]) -> dict[str, Any]:
    own = [manifest for (output, _), (manifest, _) in stored.items() if output == target.output]
    return {
        "output": target.output,
        "dataset_uuid": target.dataset_uuid,
        "dataset_version": target.dataset_version,
        "partitions": len(own),
        "rows": sum(one.row_count for one in own),
        "bytes": sum(one.bytes for one in own),
    }


def _cursors(facts: JobFacts, grant: TaskGrant) -> list[dict[str, Any]]:
    if identity.is_again(grant.lease.task_id):
        return []
    read = [
        WantedInput(
            alias=one.alias,
            dataset_uuid=one.dataset_uuid,
            dataset_version=one.dataset_version,
            parts=tuple((part.partition_key, part.version, part.after) for part in one.parts),
        )
        for one in grant.inputs
    ]
    return [
        {
            "dataset_uuid": dataset,
            "dataset_version": generation,
            "consumer": facts.generation,
            "partition_key": key,
            "version": version,
        }
        for dataset, generation, key, version in consumed(facts.view, read)
    ]
