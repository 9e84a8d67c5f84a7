"""What decides which tasks a job wants, read in one transaction: inputs as they stand, cursors, and what was started."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.postgres.database import Connection
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import ALL, projected
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_values import Cursors, InputView, PartView, WantedInput, WantedTask, given
from noetl.pipelines.tasks.jobs import JobFacts

_GENERATIONS: Final = """
SELECT w.dataset_uuid::text AS dataset_uuid, coalesce(own.dataset_version, other.dataset_version)::text AS dataset_version
FROM unnest($1::uuid[]) AS w (dataset_uuid)
LEFT JOIN noetl.dag_version_dataset AS own ON own.dag_version_id = $2 AND own.dataset_uuid = w.dataset_uuid
LEFT JOIN LATERAL (
    SELECT p.dataset_version FROM noetl.dataset AS d JOIN noetl.dag_current_version AS c ON c.dag = d.producer_dag
    JOIN noetl.dag_version_dataset AS p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = d.dataset_uuid
    WHERE d.dataset_uuid = w.dataset_uuid
) AS other ON true
"""
_PARTS: Final = """
SELECT partition_key, version, content_digest, dropped FROM noetl.partition_version
WHERE dataset_version = $1 AND current AND ($2::text[] IS NULL OR partition_key = ANY ($2)) ORDER BY partition_key
"""
_CURSORS: Final = """
SELECT dataset_version::text AS dataset_version, partition_key, version FROM noetl.dataset_cursor
WHERE consumer = $1 AND dataset_version = ANY ($2::uuid[])
"""
_OPEN: Final = f"""
SELECT task_id::text AS task_id, inputs, inputs_ref FROM noetl.task
WHERE generation = $1 AND runtime = $2 AND {TASK.waiting()}
UNION ALL
SELECT task_id::text, inputs, inputs_ref FROM noetl.task WHERE generation = $1 AND status = 'Running'
"""  # noqa: S608
_ANY_TASK: Final = """
SELECT found.dedupe_key FROM unnest($2::text[]) AS w (partition_key) CROSS JOIN LATERAL (
    SELECT t.dedupe_key FROM noetl.task AS t WHERE t.generation = $1 AND t.partition_key = w.partition_key
      AND t.dedupe_key >= w.partition_key || ':' AND t.dedupe_key < w.partition_key || ';' LIMIT 1
) AS found
"""
_STARTED: Final = """
SELECT w.start FROM unnest($2::text[]) AS w (start) WHERE EXISTS (
    SELECT FROM noetl.task AS t WHERE t.generation = $1
      AND t.dedupe_key >= w.start || ':' COLLATE "C" AND t.dedupe_key < w.start || ';' COLLATE "C")
"""


async def read_inputs(connection: Connection, facts: JobFacts, only: Collection[str] | None) -> dict[str, InputView]:
    """Return, by alias, what stands behind a job's inputs; of one that is partitioned just like it only what is asked."""
    job = facts.view
    datasets = sorted({one.dataset_uuid for one in job.inputs})
    rows = await connection.fetch(_GENERATIONS, datasets, facts.dag_version_id)
    generations = {row["dataset_uuid"]: row["dataset_version"] for row in rows}
    found = {}
    for one in job.inputs:
        generation = generations.get(one.dataset_uuid)
        if generation is None:
            continue
        alike = job.is_split and job.carried_by(one) and one.partition_by == job.partition_by
        keys = sorted(only) if alike and only is not None else None
        parts = await connection.fetch(_PARTS, generation, keys)
        found[one.alias] = InputView(
            dataset_version=generation,
            parts=tuple(
                PartView(
                    partition_key=row["partition_key"],
                    version=row["version"],
                    content_digest=row["content_digest"] or "",
                    dropped=row["dropped"],
                )
                for row in parts
            ),
        )
    return found


async def read_cursors(
    connection: Connection, scope: Scope, payloads: PayloadStore, facts: JobFacts, inputs: Mapping[str, InputView]
) -> Cursors:
    """Return how far a job has consumed its inputs, counting what tasks under way will have consumed."""
    job = facts.view
    if job.strategy != "PerUpdate":
        return {}
    # Tasks first: one that ends in between has moved its cursor by the time that is read.
    under_way = [
        row
        for row in await connection.fetch(_OPEN, job.generation, facts.definition.runtime)
        # What is built again consumes nothing: news stay for the task that is made for them.
        if not identity.is_again(row["task_id"])
    ]
    rows = await connection.fetch(_CURSORS, job.generation, [view.dataset_version for view in inputs.values()])
    cursors = {(row["dataset_version"], row["partition_key"]): row["version"] for row in rows}
    pinned = [await pinned_inputs(scope, payloads, row["inputs"], row["inputs_ref"]) for row in under_way]
    return given(job, cursors, [msgspec.convert(entries, list[WantedInput]) for entries in pinned])


async def pinned_inputs(
    scope: Scope, payloads: PayloadStore, inputs: str | None, inputs_ref: str | None
) -> list[dict[str, Any]]:
    """Return what a task reads, from its row or, if that was too much for it, from the payload the row names."""
    entries: list[dict[str, Any]] = orjson.loads(inputs or "[]")
    if inputs_ref is None or not entries:
        return entries  # what a task without inputs names was sent to it
    ref = msgspec.convert(orjson.loads(inputs_ref), PayloadRef)
    parts = orjson.loads(await payloads.fetch(scope, ref))
    return [{**entry, "parts": parts[entry["alias"]]} for entry in entries]


async def read_worked(
    connection: Connection, facts: JobFacts, inputs: Mapping[str, InputView], only: Collection[str] | None
) -> list[str]:
    """Return a key of some task for each partition that lost something and was worked before."""
    job = facts.view
    keys: set[str] = set()
    for one in job.inputs:
        parts = inputs[one.alias].parts if one.alias in inputs else ()
        if any(part.dropped for part in parts):
            keys |= _read_by(facts, inputs) if job.is_split and not job.carried_by(one) else _keys(facts, parts)
    asked = sorted(keys if only is None else keys & set(only))
    if not asked:
        return []
    return [row["dedupe_key"] for row in await connection.fetch(_ANY_TASK, job.generation, asked)]


async def read_started(connection: Connection, facts: JobFacts, tasks: Sequence[WantedTask]) -> set[str]:
    """Return which of these tasks the same versions of their triggering inputs have started before."""
    starts = sorted({identity.same_start(task.dedupe_key) for task in tasks})
    if not starts:
        return set()
    return {row["start"] for row in await connection.fetch(_STARTED, facts.generation, starts)}


def _keys(facts: JobFacts, parts: Sequence[PartView]) -> set[str]:
    job = facts.view
    return {projected(part.partition_key, job.partition_by) for part in parts} if job.is_split else {ALL}


def _read_by(facts: JobFacts, inputs: Mapping[str, InputView]) -> set[str]:
    """Return the job's partitions there may be: each of them reads an input that is not partitioned like the job."""
    job = facts.view
    carrying = [one for one in job.inputs if job.carried_by(one) and one.alias in inputs]
    return {key for one in carrying for key in _keys(facts, inputs[one.alias].parts)}
