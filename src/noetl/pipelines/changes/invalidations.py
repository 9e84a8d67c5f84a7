"""Rows that are wrong: a dataset and a scope go in, and what they are made by, or made into, runs again.

All is recorded at once: the invalidation and its tasks stand together or not at all. What those commit is routed on like
any other change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.engine.dispatch.facts.postgres import PostgresFacts
from noetl.engine.dispatch.request_keys import reused, stands_for
from noetl.errors import InputError, KeyReused, NotFound, PayloadCollected, VersionConflict
from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import Connection
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue.changes import InvalidationReason, InvalidationScope
from noetl.model.dataset import Manifest
from noetl.model.ids import Id64
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.changes.context import Located, Means, tasks_again, worked_as
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.file_statistics import RowRange, row_range
from noetl.pipelines.plan.rebuilding import BY_HAND, cannot_build_anew
from noetl.pipelines.plan.wanted_tasks import affected
from noetl.pipelines.plan.wanted_values import WantedTask
from noetl.pipelines.tasks.jobs import JobFacts

MOST_TASKS: Final = 1_000
"""Tasks one invalidation may ask for: it is one transaction, which others wait for."""
_FETCHED_AT_ONCE: Final = 16
_decoder = msgspec.json.Decoder(Manifest)

_PARTITIONS: Final = """
SELECT v.partition_key, v.manifest_ref FROM noetl.partition_version AS v
WHERE v.dataset_version = $1 AND v.current AND NOT v.dropped ORDER BY 1
"""
_COLUMNS: Final = """
i.invalidation_id, i.dataset_uuid::text AS dataset_uuid, i.dataset_version::text AS dataset_version, d.name AS dataset,
i.scope, i.partition_key, i.row_filter, i.reason, i.note, i.requested_by, i.dependents, i.processed_by, i.status,
i.closed_because, i.created_at, i.closed_at
"""
_FROM: Final = f"SELECT {_COLUMNS} FROM noetl.data_invalidation AS i LEFT JOIN noetl.dataset AS d USING (dataset_uuid)"  # noqa: S608
_ONE: Final = f"{_FROM} WHERE i.invalidation_id = $1"
_LIST: Final = f"""
{_FROM} WHERE ($1::text IS NULL OR i.status = $1) AND ($2::bigint IS NULL OR i.invalidation_id < $2)
ORDER BY i.invalidation_id DESC LIMIT $3
"""
_GENERATIONS: Final = """
SELECT DISTINCT ON (j.generation) j.generation::text AS generation, j.dag || '.' || j.name AS job
FROM noetl.job AS j WHERE j.generation = ANY ($1::uuid[]) ORDER BY j.generation
"""
_ABANDONED: Final = """
SELECT i.invalidation_id FROM noetl.data_invalidation AS i WHERE i.status = 'open' AND NOT EXISTS (
    SELECT FROM jsonb_object_keys(i.dependents) AS own (generation)
    JOIN noetl.job AS j ON j.generation = own.generation::uuid
    JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
    WHERE v.status IN ('building', 'failed', 'ready', 'active'))
"""


class PublicInvalidation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were said to be wrong."""

    invalidation_id: Id64
    dataset_uuid: str
    dataset_version: str
    dataset: str | None
    scope: InvalidationScope
    partition_key: str | None
    row_filter: dict[str, dict[str, Any]] | None
    reason: InvalidationReason
    note: str | None
    requested_by: str
    status: Literal["open", "closed"]
    closed_because: str | None
    created_at: datetime
    closed_at: datetime | None


class Invalidation(PublicInvalidation, frozen=True, kw_only=True):
    """Rows that were said to be wrong, and how far they are worked off."""

    dependents: dict[str, int]
    """Tasks that were asked for, by generation."""
    processed_by: dict[str, int]
    """How many of them are done."""
    jobs: dict[str, str] = {}
    """What the generations are called, as DAG.JOB."""

    @property
    def tasks(self) -> dict[str, int]:
        """Tasks that were asked for, by job; one whose generation is gone by its generation."""
        return self._by_job(self.dependents)

    @property
    def done(self) -> dict[str, int]:
        """How many of them are done."""
        return self._by_job(self.processed_by)

    def _by_job(self, counts: dict[str, int]) -> dict[str, int]:
        return {self.jobs.get(generation, generation): count for generation, count in counts.items()}


_Asked = tuple[JobFacts, frozenset[str] | None]
"""A job, and which of its partitions run again; None for all."""


class _Work(msgspec.Struct, frozen=True):
    """What of one job runs again."""

    facts: JobFacts
    tasks: list[WantedTask]


class Invalidations:
    """The invalidations of one database."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def invalidate(
        self,
        scope: Scope,
        name: str,
        *,
        partition_key: str | None = None,
        where: str | None = None,
        reason: InvalidationReason = "manual",
        note: str | None = None,
        by: str,
        key: str | None = None,
        rebuild: bool = False,
    ) -> Invalidation:
        """Say that a partition, or the rows of a range, of a dataset are wrong, and have them made anew.

        With a `key`, a second request under it gives the invalidation of the first one. `rebuild` says that the files are
        lost, not wrong: a source is asked for the partition again, and a job that appends, which would need them, is refused.
        """
        if (partition_key is None) == (where is None):
            raise InputError(
                "say what is wrong: a partition or a range of rows", hint="--partition KEY or --where COLUMN:FROM..TO"
            )
        while True:
            found = await self._means.located(scope, name)
            if rebuild:
                _refuse_unbuildable(found)
            rows = None if where is None else await self._range(scope, found, where)
            if (
                key is not None
                and (run := await stands_for(PostgresFacts(self._means.database), scope, key)) is not None
            ):
                return await self._repeated(scope, run, key, (found, rows, partition_key, reason, note))
            keys = await self._wrong(scope, found, partition_key, rows)
            meta: dict[str, Any] = {
                "dataset_uuid": found.dataset.dataset_uuid,
                "dataset_version": found.output.dataset_version,
                "scope": "partition" if rows is None else "row_range",
                "partition_key": partition_key,
                "reason": reason,
                "note": note,
                "requested_by": by,
            }
            execution_id = self._means.mint()
            appends = await self._appends(scope, execution_id, found, keys, rows, meta, key, rebuild=rebuild)
            reach("invalidation.before_record")
            try:
                await self._means.ledger.transact(Transition(appends))
            except (VersionConflict, PayloadCollected):
                continue  # what an operator keeps, or a payload, changed meanwhile
            except KeyReused:
                continue  # somebody was quicker with the same key: theirs is what it stands for
            reach("invalidation.after_record")
            self._means.recorded(scope, execution_id)
            return await self.show(scope, execution_id)

    async def _repeated(
        self,
        scope: Scope,
        run: int,
        key: str,
        asked: tuple[Located, RowRange | None, str | None, InvalidationReason, str | None],
    ) -> Invalidation:
        found, rows, *told = asked
        try:
            one = await self.show(scope, run)
        except NotFound:
            raise reused(key, run) from None
        row_filter = None if rows is None else rows.row_filter
        stands = [one.dataset_uuid, one.row_filter, one.partition_key, one.reason, one.note]
        if stands != [found.dataset.dataset_uuid, row_filter, *told]:
            raise reused(key, run)
        return one

    async def show(self, scope: Scope, invalidation_id: int) -> Invalidation:
        """Return one invalidation."""
        async with self._means.database.transaction(scope) as connection:
            row = await connection.fetchrow(_ONE, invalidation_id)
            if row is None:
                raise NotFound(
                    f"there is no invalidation {invalidation_id}", hint="`noetl datasets invalidations` lists them"
                )
            return (await _invalidations(connection, [row]))[0]

    async def listed(
        self, scope: Scope, *, status: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[Invalidation]:
        """Return invalidations, the newest first."""
        async with self._means.database.transaction(scope) as connection:
            return await _invalidations(connection, await connection.fetch(_LIST, status, before, limit))

    async def close_abandoned(self, scope: Scope, *, by: str) -> list[int]:
        """Close invalidations whose tasks belong to generations that nobody uses any more, and return them."""
        async with self._means.database.transaction(scope) as connection:
            found = [row["invalidation_id"] for row in await connection.fetch(_ABANDONED)]
        for execution_id in found:
            stream = identity.invalidation_stream(scope, execution_id)
            draft = self._means.drafting.one(
                scope, stream, execution_id, "invalidation.closed", stream.stream_id,
                meta={"because": "the generations that were to be worked off are no longer in use", "by": by},
            )  # fmt: skip
            await self._means.ledger.transact(Transition((Append(stream, [draft]),)))
        return found

    async def _range(self, scope: Scope, found: Located, where: str) -> RowRange:
        return row_range(where, await self._means.datasets.schema(scope, found.output.dataset_version))

    async def _wrong(self, scope: Scope, found: Located, partition_key: str | None, rows: RowRange | None) -> list[str]:
        """Return the partitions of the dataset that have the wrong rows, as far as their statistics tell."""
        async with self._means.database.transaction(scope) as connection:
            there = await connection.fetch(_PARTITIONS, found.output.dataset_version)
        if rows is None or partition_key is not None:
            if partition_key not in {row["partition_key"] for row in there}:
                raise NotFound(
                    f"{found.dataset.name} has no partition {partition_key}",
                    hint=f"`noetl datasets show {found.dataset.name}` lists them",
                )
            return [str(partition_key)]
        gate = asyncio.Semaphore(_FETCHED_AT_ONCE)

        async def meets(row: Any) -> bool:
            async with gate:
                ref = msgspec.convert(orjson.loads(row["manifest_ref"]), PayloadRef)
                return rows.may_be_in(_decoder.decode(await self._means.payloads.fetch(scope, ref)))

        met = await asyncio.gather(*map(meets, there))
        return [row["partition_key"] for row, meets_it in zip(there, met, strict=True) if meets_it]

    async def _appends(
        self,
        scope: Scope,
        execution_id: int,
        found: Located,
        keys: Sequence[str],
        rows: RowRange | None,
        meta: dict[str, Any],
        key: str | None,
        *,
        rebuild: bool,
    ) -> tuple[Append, ...]:
        async with self._means.database.transaction(scope) as connection:
            if rebuild and found.is_source:
                asked: list[_Asked] = [(found.facts, frozenset(keys))]
            else:
                asked = await self._asked(connection, scope, found, keys)
            forgotten = await self._means.forgotten(connection, scope, execution_id, [facts for facts, _ in asked])
            work = []
            for facts, own in asked:
                # What an operator remembers is of all partitions, so that it is told of all of them again.
                only = None if facts.generation in forgotten else own
                work.append(_Work(facts, await tasks_again(connection, facts, only, execution_id)))
        count = sum(len(one.tasks) for one in work)
        if count > MOST_TASKS:
            raise InputError(
                f"{count:,} tasks would follow, and an invalidation asks for {MOST_TASKS:,} at most",
                hint="name a smaller range, or build the partitions again with `noetl datasets backfill`",
            )
        context: dict[str, Any] = {"dependents": {one.facts.generation: len(one.tasks) for one in work if one.tasks}}
        if rows is not None:
            context["row_filter"] = rows.row_filter
        stream = identity.invalidation_stream(scope, execution_id)
        told = {name: value for name, value in meta.items() if value is not None}
        draft = self._means.drafting.one(
            scope, stream, execution_id, "dataset.invalidated", stream.stream_id, meta=told, context=context
        )
        creating = self._means.creating
        made = [creating.append(scope, execution_id, one.facts, task) for one in work for task in one.tasks]
        reset = [forgotten[one.facts.generation] for one in work if one.tasks and one.facts.generation in forgotten]
        return (
            self._means.requested(
                scope, execution_id, found.facts, meta["requested_by"], key=key, cause="invalidation"
            ),
            Append(stream, [draft], 0),
            *reset,
            *(await asyncio.gather(*made)),
        )

    async def _asked(self, connection: Connection, scope: Scope, found: Located, keys: Sequence[str]) -> list[_Asked]:
        """Return the jobs that run again with their partitions: the one that builds the dataset, or those that read it.

        Nothing here can build what a source gave: what was made of it is made anew instead.
        """
        if not found.is_source:
            return [(found.facts, worked_as(found.facts, keys))] if keys else []
        dataset = found.dataset.dataset_uuid
        asked = []
        for facts in await self._means.engine.routing.readers(connection, scope, dataset, found.output.dataset_version):
            touched = [affected(facts.view, dataset, key) for key in keys]
            if touched and (None in touched or any(touched)):
                all_of_them = None in touched
                asked.append((facts, None if all_of_them else frozenset[str]().union(*(own or () for own in touched))))
        return asked


def _refuse_unbuildable(found: Located) -> None:
    """Refuse what no task can build from its inputs alone."""
    facts, definition = found.facts, found.facts.definition
    source = None if definition.source is None else definition.source.kind
    why = cannot_build_anew(f"{facts.dag}.{facts.name}", definition.update_strategy, source)
    if why is not None:
        raise InputError(why, hint=BY_HAND)


async def _invalidations(connection: Connection, rows: Sequence[Any]) -> list[Invalidation]:
    parsed = [
        {
            **dict(row),
            **{name: orjson.loads(row[name] or "null") for name in ("row_filter", "dependents", "processed_by")},
        }
        for row in rows
    ]
    generations = sorted({generation for row in parsed for generation in row["dependents"]})
    names: Mapping[str, str] = {
        row["generation"]: row["job"] for row in await connection.fetch(_GENERATIONS, generations)
    }
    return [Invalidation(**row, jobs={one: names[one] for one in row["dependents"] if one in names}) for row in parsed]
