"""What a worker is given with its lease: inputs pinned to manifests, outputs with what stands of them now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.dag.times import seconds_of
from noetl.model.dataset import ALL, Field
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import InputPart, TaskGrant, TaskInput, TaskLease, TaskTarget
from noetl.pipelines.plan.schema_rules import spelled
from noetl.pipelines.tasks.jobs import JobFacts, Output
from noetl.pipelines.tasks.routing.inputs import pinned_inputs

_PINNED: Final = """
SELECT v.dataset_version::text AS dataset_version, v.partition_key, v.version, v.manifest_ref
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS w (dataset_version, partition_key, version)
JOIN noetl.partition_version AS v USING (dataset_version, partition_key, version) WHERE v.manifest_ref IS NOT NULL
"""
_SCHEMAS: Final = """
SELECT DISTINCT ON (s.dataset_version) s.dataset_version::text AS dataset_version, s.schema
FROM noetl.dataset_schema AS s WHERE s.dataset_version = ANY ($1::uuid[]) ORDER BY s.dataset_version, s.version DESC
"""
_STANDING: Final = """
SELECT v.dataset_version::text AS dataset_version, v.partition_key, v.version, v.manifest_ref
FROM noetl.partition_version AS v
WHERE v.dataset_version = ANY ($1::uuid[]) AND v.current AND NOT v.dropped
  AND ($2::text[] IS NULL OR v.partition_key = ANY ($2))
ORDER BY v.partition_key
"""
_STATE: Final = "SELECT state FROM noetl.operator_state WHERE generation = $1 AND state_key = 'default'"

Pin = tuple[str, str, int]


class Claimed(msgspec.Struct, frozen=True):
    """A task under a fresh lease."""

    lease: TaskLease
    execution_id: int
    partition_key: str
    inputs: str | None
    inputs_ref: str | None
    """Both as their columns have them."""
    left: tuple[str, str] | None = None
    """Application and tag of the attempt before."""


class Granting:
    """Makes grants of one database."""

    def __init__(self, database: Database, payloads: PayloadStore) -> None:
        self._database = database
        self._payloads = payloads

    async def grants(self, scope: Scope, facts: JobFacts, claimed: Sequence[Claimed]) -> list[TaskGrant]:
        """Return the grants of tasks of one job; a job that neither reads nor builds anything costs no query."""
        if not claimed:
            return []
        if not facts.outputs and not facts.view.inputs:
            return [bare(facts, one) for one in claimed]
        read = [await pinned_inputs(scope, self._payloads, one.inputs, one.inputs_ref) for one in claimed]
        async with self._database.transaction(scope) as connection:
            pinned = await _pinned(connection, read)
            # An input of which nothing is there, or nothing any more, is an empty table with the columns it would have.
            bare = {entry["dataset_version"] for inputs in read for entry in inputs if not entry.get("parts")}
            columns = await _schemas(connection, sorted(bare)) if bare else {}
            targets = await _targets(connection, facts, {one.partition_key for one in claimed})
            state = await connection.fetchval(_STATE, facts.generation)
        kept = {} if state is None else orjson.loads(state)
        return [
            _grant(
                facts,
                one,
                tuple(_input(facts, entry, pinned, columns) for entry in inputs),
                tuple(_only(target, one.partition_key) for target in targets),
                kept,
            )
            for one, inputs in zip(claimed, read, strict=True)
        ]


def bare(facts: JobFacts, claimed: Claimed) -> TaskGrant:
    """Return the grant of a task without anything that has to be read."""
    return _grant(facts, claimed, (), (), {})


def _grant(
    facts: JobFacts,
    claimed: Claimed,
    inputs: tuple[TaskInput, ...],
    targets: tuple[TaskTarget, ...],
    state: dict[str, Any],
) -> TaskGrant:
    job = facts.definition
    return TaskGrant(
        lease=claimed.lease,
        execution_id=claimed.execution_id,
        job_id=facts.job_id,
        dag=facts.dag,
        job=facts.name,
        dag_version_id=facts.dag_version_id,
        operator=job.operator,
        runtime=job.runtime,
        partition_key=claimed.partition_key,
        strategy=job.execution_strategy,
        config=job.config,
        bundle=facts.bundle,
        code_digest=facts.code_digest,
        inputs=inputs,
        targets=targets,
        checks=tuple(msgspec.to_builtins(check) for check in job.checks),
        spark=job.spark,
        timeout_seconds=job.timeout_seconds,
        secrets=job.secrets,
        udf=None if job.udf is None else msgspec.to_builtins(job.udf),
        operator_state=state,
        sent=_sent(claimed),
        source=None if job.source is None else job.source.kind,
        idle_seconds=_idle_seconds(job.idle_timeout),
        left=claimed.left,
    )


def _sent(claimed: Claimed) -> PayloadRef | None:
    """Return what started the task: a task without inputs has nothing else beside its row."""
    if claimed.inputs_ref is None or orjson.loads(claimed.inputs or "[]"):
        return None
    return msgspec.convert(orjson.loads(claimed.inputs_ref), PayloadRef)


def _idle_seconds(text: str | None) -> float | None:
    return None if text in (None, "never") else seconds_of(text)


async def _pinned(connection: Connection, read: Sequence[list[dict[str, Any]]]) -> dict[Pin, PayloadRef]:
    pins = sorted(
        {
            (entry["dataset_version"], key, version)
            for inputs in read
            for entry in inputs
            for key, version, _ in entry.get("parts", ())
        }
    )
    if not pins:
        return {}
    rows = await connection.fetch(_PINNED, *(list(column) for column in zip(*pins, strict=True)))
    return {(row["dataset_version"], row["partition_key"], row["version"]): _ref(row) for row in rows}


async def _schemas(connection: Connection, generations: Sequence[str]) -> dict[str, tuple[Field, ...]]:
    rows = await connection.fetch(_SCHEMAS, generations)
    return {row["dataset_version"]: tuple(Field(*column) for column in orjson.loads(row["schema"])) for row in rows}


async def _targets(connection: Connection, facts: JobFacts, keys: set[str]) -> list[TaskTarget]:
    if not facts.outputs:
        return []
    generations = [output.dataset_version for output in facts.outputs]
    schemas = await _schemas(connection, generations)
    # A task that splits its rows by value may touch any partition, and must know which ones it leaves out.
    any_partition = bool(facts.definition.partition_by) and ALL in keys
    standing: dict[str, list[InputPart]] = {}
    for row in await connection.fetch(_STANDING, generations, None if any_partition else sorted(keys)):
        standing.setdefault(row["dataset_version"], []).append(
            InputPart(partition_key=row["partition_key"], version=row["version"], manifest=_ref(row))
        )
    return [
        _target(facts, output, schemas.get(output.dataset_version, ()), standing.get(output.dataset_version, ()))
        for output in facts.outputs
    ]


def _target(facts: JobFacts, output: Output, schema: tuple[Field, ...], parts: Sequence[InputPart]) -> TaskTarget:
    job = facts.definition
    return TaskTarget(
        output=output.output,
        dataset_uuid=output.dataset_uuid,
        dataset_version=output.dataset_version,
        dataset_name=output.name,
        location=output.location,
        partition_by=output.partition_by,
        update_strategy=job.update_strategy,
        unique_key=job.unique_key,
        schema=schema,
        declared=tuple(Field(one.name, spelled(one.type), one.nullable) for one in job.schema.columns),
        evolve=job.schema.evolve,
        parts=tuple(parts),
    )


def _only(target: TaskTarget, partition_key: str) -> TaskTarget:
    if target.partition_by and partition_key == ALL:
        return target
    own = tuple(part for part in target.parts if part.partition_key == partition_key)
    return target if own == target.parts else msgspec.structs.replace(target, parts=own)


def _input(
    facts: JobFacts, entry: dict[str, Any], pinned: dict[Pin, PayloadRef], columns: dict[str, tuple[Field, ...]]
) -> TaskInput:
    generation = entry["dataset_version"]
    return TaskInput(
        alias=entry["alias"],
        dataset_uuid=entry["dataset_uuid"],
        dataset_version=generation,
        parts=tuple(
            InputPart(partition_key=key, version=version, manifest=pinned[generation, key, version], after=after)
            for key, version, after in entry.get("parts", ())
            if (generation, key, version) in pinned
        ),
        where=facts.wheres.get(entry["alias"], {}),
        partition_by=next((one.partition_by for one in facts.view.inputs if one.alias == entry["alias"]), ()),
        schema=columns.get(generation, ()),
    )


def _ref(row: Any) -> PayloadRef:
    return msgspec.convert(orjson.loads(row["manifest_ref"]), PayloadRef)
