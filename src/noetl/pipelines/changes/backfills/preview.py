"""What a backfill would do, said before it is done: which partitions, which of them stand, what follows. Only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from noetl.errors import InputError
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.dataset import ALL
from noetl.model.stream import Scope
from noetl.pipelines.changes.context import Located, Means
from noetl.pipelines.plan.partition_ranges import Selection, candidates, chosen, keys_of
from noetl.pipelines.tasks.jobs import JobFacts

_STANDING: Final = """
SELECT v.partition_key FROM noetl.partition_version AS v
WHERE v.dataset_version = $1 AND v.current AND NOT v.dropped
"""
_GENERATION: Final = """
SELECT coalesce(own.dataset_version, other.dataset_version)::text
FROM (SELECT) AS one
LEFT JOIN noetl.dag_version_dataset AS own ON own.dag_version_id = $2 AND own.dataset_uuid = $1
LEFT JOIN LATERAL (
    SELECT p.dataset_version FROM noetl.dataset AS d JOIN noetl.dag_current_version AS c ON c.dag = d.producer_dag
    JOIN noetl.dag_version_dataset AS p ON p.dag_version_id = c.dag_version_id AND p.dataset_uuid = d.dataset_uuid
    WHERE d.dataset_uuid = $1
) AS other ON true
"""
_FOLLOWING: Final = """
WITH RECURSIVE job AS MATERIALIZED (
    SELECT j.dag, j.name, j.input_datasets, j.output_datasets FROM noetl.job AS j
    JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id) WHERE v.status = 'active'
), following AS (
    SELECT job.dag, job.name, job.output_datasets FROM job WHERE job.input_datasets && $1::uuid[]
    UNION
    SELECT job.dag, job.name, job.output_datasets FROM job
    JOIN following ON job.input_datasets && following.output_datasets
)
SELECT dag || '.' || name AS job FROM following ORDER BY 1
"""
_SECONDS: Final = """
SELECT avg(extract(epoch FROM t.ended_at - t.started_at))::double precision FROM (
    SELECT started_at, ended_at FROM noetl.task WHERE generation = $1 AND status = 'Completed' LIMIT 100) AS t
"""


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill does."""

    dataset: str
    dag: str
    job: str
    is_source: bool
    selection: Selection
    total: int
    first: str | None
    last: str | None
    standing: int
    """How many of them are there already and are built again."""
    without_input: int
    """Partitions of the range that inputs have nothing for: they are left out."""
    whole: bool
    """Whether the job is worked whole, so that one task builds everything."""
    following: tuple[str, ...]
    """Jobs that read what is built, at any distance, as DAG.JOB."""
    max_in_flight: int
    task_seconds: float | None
    """What a task of the job takes, as far as there were any."""
    seconds: float | None
    """About how long all of them take, if that many run at a time."""


class BackfillPlan(PlanView, frozen=True, kw_only=True):
    """What a backfill does, with every partition."""

    keys: tuple[str, ...]


class BackfillPlans:
    """Plans backfills of one database."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def plan(
        self,
        scope: Scope,
        name: str,
        *,
        start: str,
        end: str,
        step: str | None = None,
        fixed: Mapping[str, str] | None = None,
        max_in_flight: int,
    ) -> tuple[Located, BackfillPlan]:
        """Say which partitions a backfill of a range has, and what is known of them."""
        found = await self._means.located(scope, name)
        _refuse_unasked(found)
        asked = Selection(column=_column(found, fixed or {}), start=start, end=end, step=step, fixed=dict(fixed or {}))
        async with self._means.database.transaction(scope) as connection:
            keys, without = await self._keys(connection, found, asked)
            rows = await connection.fetch(_STANDING, found.output.dataset_version)
            following = await connection.fetch(_FOLLOWING, [one.dataset_uuid for one in found.facts.outputs])
            seconds = await connection.fetchval(_SECONDS, found.facts.generation)
        there = {row["partition_key"] for row in rows}
        whole = not found.is_source and not found.facts.view.is_split
        return found, BackfillPlan(
            dataset=found.dataset.name,
            dag=found.facts.dag,
            job=found.facts.name,
            is_source=found.is_source,
            selection=asked,
            total=len(keys),
            first=keys[0] if keys else None,
            last=keys[-1] if keys else None,
            standing=len(there) if whole else len(there.intersection(keys)),
            without_input=without,
            whole=whole,
            following=tuple(row["job"] for row in following),
            max_in_flight=max_in_flight,
            task_seconds=seconds,
            seconds=None if seconds is None else seconds * -(-len(keys) // _at_once(found.facts, max_in_flight)),
            keys=tuple(keys),
        )

    async def _keys(self, connection: Connection, found: Located, asked: Selection) -> tuple[list[str], int]:
        """Return the partitions in their order, and how many of the range there is nothing to build of."""
        facts = found.facts
        if found.is_source:
            # A million days and hours take seconds to write down, in which others must be served.
            return await asyncio.to_thread(keys_of, asked, facts.view.partition_by), 0
        if not facts.view.is_split:
            return [ALL], 0
        parts = {}
        for one in facts.view.inputs:
            generation = await connection.fetchval(_GENERATION, one.dataset_uuid, facts.dag_version_id)
            rows = [] if generation is None else await connection.fetch(_STANDING, generation)
            parts[one.alias] = [row["partition_key"] for row in rows]
        possible = candidates(facts.view, parts)
        if asked.step is None:
            return chosen(asked, possible), 0
        wanted = await asyncio.to_thread(keys_of, asked, facts.view.partition_by)
        keys = [key for key in wanted if key in possible]
        return keys, len(wanted) - len(keys)


def _refuse_unasked(found: Located) -> None:
    """Refuse sources that say by themselves what they give."""
    source = found.facts.definition.source
    if source is not None and source.kind in ("always_on", "webhook"):
        raise InputError(
            f"{found.dataset.name} comes from the {source.kind} source {found.facts.dag}.{found.facts.name}, which cannot"
            " be asked for a partition",
            hint="build what reads it again instead, or fetch the past with a source of its own",
        )


def _column(found: Located, fixed: Mapping[str, str]) -> str:
    """Return the column whose range is meant: the first that has no value given."""
    columns = found.output.partition_by
    name = found.dataset.name
    unknown = sorted(set(fixed) - set(columns))
    if unknown:
        raise InputError(
            f"{name} is not partitioned by {unknown[0]}", hint=f"it is by {', '.join(columns) or 'nothing'}"
        )
    free = [column for column in columns if column not in fixed]
    if not free:
        told = "is not partitioned" if not columns else "has nothing left to range over"
        raise InputError(f"{name} {told}", hint=f"noetl datasets invalidate {name} builds one partition again")
    return free[0]


def _at_once(facts: JobFacts, max_in_flight: int) -> int:
    most = facts.definition.max_concurrency
    return max_in_flight if most is None else min(most, max_in_flight)
