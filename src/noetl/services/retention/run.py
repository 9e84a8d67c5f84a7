"""Carries a plan out: the event first, then files and rows, each step such that the next run finishes what a crash left.

Every event is appended at the versions the plan was made from. Whoever pinned, deployed or switched meanwhile makes it
fail before anything is touched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import orjson

from noetl import faults
from noetl.errors import Conflict, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.event import Draft, time_text
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity
from noetl.services.retention.history_rows import old_slots
from noetl.services.retention.lake_prefix import LakePrefixes
from noetl.services.retention.pins import draft_of, pins_stream
from noetl.services.retention.plan import Kind, Letting, Plan, Sweep, Trim
from noetl.spark.lake.storage import Lake

EVENT_BYTES: Final = 32 * 1024
"""How much of a list of versions one event holds."""
ROWS_AT_ONCE: Final = 5_000

_PURGED_DONE: Final = (
    "UPDATE noetl.retired_generation SET files_removed_at = clock_timestamp() WHERE dataset_version = $1"
)
_TRIMMED_DONE: Final = """
UPDATE noetl.trimmed_version AS t SET files_removed_at = clock_timestamp()
FROM unnest($2::text[], $3::bigint[]) AS done (partition_key, version)
WHERE t.dataset_version = $1 AND t.partition_key = done.partition_key AND t.version = done.version
"""


class Changed(Conflict):
    """Somebody pinned, deployed, switched or removed something since the plan was made."""

    code = "plan_outdated"


class Done(msgspec.Struct, kw_only=True):
    """What a run did, by kind: how many things and how many bytes of files."""

    removed: dict[str, tuple[int, int]] = {}

    def add(self, kind: Kind, items: int, size: int = 0) -> None:
        """Count."""
        before = self.removed.get(kind, (0, 0))
        self.removed[kind] = before[0] + items, before[1] + size


class Running:
    """Carries out plans of one organization."""

    def __init__(
        self,
        scope: Scope,
        database: Database,
        ledger: Ledger,
        lake: Lake,
        mint: Callable[[], int],
        producer: str,
    ) -> None:
        self._scope = scope
        self._database = database
        self._ledger = ledger
        self._prefixes = LakePrefixes(lake, scope)
        self._mint = mint
        self._producer = producer

    async def run(self, plan: Plan) -> Done:
        """Do what a plan says; Changed if it is outdated, Conflict if another process runs retention here."""
        done = Done()
        async with alone(self._database, self._scope):
            for one in plan.unfinished:
                await self._finish(one.location, one.dataset_version, one.versions, list(one.files))
                done.add("generations" if one.versions is None else "versions", 0, sum(one.files.values()))
            streams = _Versions(plan)
            dags = {one.generation.dag for one in plan.lettings} | {one.generation.dag for one in plan.trims}
            for dag in sorted(dags):
                await self._let_go(plan, dag, streams, done)
            for rest in plan.leftovers:
                await self._tell(streams, "staging", len(rest.files), sum(rest.files.values()))
                await self._prefixes.delete(rest.location, list(rest.files))
                faults.reach("retention.after_files")
                done.add("staging", len(rest.files), sum(rest.files.values()))
            for sweep in plan.sweeps:
                done.add(sweep.kind, await self._sweep(streams, sweep))
        return done

    async def _let_go(self, plan: Plan, dag: str, streams: _Versions, done: Done) -> None:
        """Record all that goes of one DAG at once, then remove the files of each generation."""
        lettings = [one for one in plan.lettings if one.generation.dag == dag]
        trims = [one for one in plan.trims if one.generation.dag == dag]
        purged = [one for one in lettings if one.purged]
        stream = identity.dag_stream(self._scope, dag)
        drafts = [self._draft(stream, *_let_go_event(one)) for one in lettings]
        drafts += [self._draft(stream, *said) for trim in trims for said in _trim_events(trim)]
        items = len(purged) + sum(len(trim.versions) for trim in trims)
        size = sum(one.bytes for one in purged) + sum(sum(trim.files.values()) for trim in trims)
        told = Append(stream, drafts, streams.of_dag(dag))
        faults.reach("retention.before_event")
        await self._append(streams, "generations", items, size, told)
        faults.reach("retention.after_event")
        for one in purged:
            location = one.generation.location
            files = await self._prefixes.files(location)
            await self._finish(location, one.generation.dataset_version, None, [file.path for file in files])
            done.add("generations", 1, sum(file.bytes for file in files))
        for trim in trims:
            name = trim.generation.dataset_version
            await self._finish(trim.generation.location, name, trim.versions, list(trim.files))
            done.add("versions", len(trim.versions), sum(trim.files.values()))

    async def _finish(
        self, location: str, dataset_version: str, versions: Sequence[tuple[str, int]] | None, paths: list[str]
    ) -> None:
        """Remove the files of data that an event has let go, and mark that they are gone."""
        await self._prefixes.delete(location, paths)
        faults.reach("retention.after_files")
        async with self._database.transaction(self._scope) as connection:
            if versions is None:
                await connection.execute(_PURGED_DONE, dataset_version)
            else:
                columns = [key for key, _ in versions], [version for _, version in versions]
                await connection.execute(_TRIMMED_DONE, dataset_version, *columns)
        faults.reach("retention.after_mark")

    async def _sweep(self, streams: _Versions, sweep: Sweep) -> int:
        if sweep.kind == "slots":
            return await self._prune_slots(sweep)
        await self._tell(streams, sweep.kind, sweep.items, 0, until=time_text(sweep.until))
        total, gone = 0, ROWS_AT_ONCE
        while gone == ROWS_AT_ONCE:
            async with self._database.transaction(self._scope) as connection:
                gone = await connection.fetchval("SELECT noetl.sweep_rows($1, $2)", sweep.kind, ROWS_AT_ONCE)
            total += gone
            faults.reach("retention.after_rows")
        return total

    async def _prune_slots(self, sweep: Sweep) -> int:
        """Say in the stream of each schedule which slots go; their rows go with the event."""
        async with self._database.transaction(self._scope) as connection:
            old = await old_slots(connection, sweep.until)
        for schedule_id, before, _ in old:
            stream = self._scope.stream(f"schedule/{schedule_id}")
            limit = time_text(before)
            meta = {"succeeded_before": limit, "failed_before": limit}
            faults.reach("retention.before_event")
            await self._ledger.transact(Transition((Append(stream, [self._draft(stream, "slot.pruned", meta, {})]),)))
            faults.reach("retention.after_event")
        return sum(slots for _, _, slots in old)

    async def _tell(self, streams: _Versions, kind: Kind, items: int, size: int, **more: Any) -> None:
        faults.reach("retention.before_event")
        await self._append(streams, kind, items, size, **more)
        faults.reach("retention.after_event")

    async def _append(
        self, streams: _Versions, kind: Kind, items: int, size: int, *beside: Append, **more: Any
    ) -> None:
        stream = pins_stream(self._scope)
        said = self._draft(stream, "pin.swept", {"kind": kind, "items": items, "bytes": size, **more}, {})
        try:
            await self._ledger.transact(Transition((Append(stream, [said], streams.pins), *beside)))
        except VersionConflict as problem:
            raise Changed(
                "something was pinned, deployed, switched or removed since the plan was made; nothing of this step was"
                " done",
                hint="run it again: a new plan is made",
            ) from problem
        streams.pins += 1

    def _draft(self, stream: Any, event_type: str, meta: dict[str, Any], context: dict[str, Any]) -> Draft:
        return draft_of(self._scope, stream, self._mint(), self._producer, event_type, meta, context)


class _Versions:
    """How far the streams were when the plan was made, and what was appended to them since by this run."""

    def __init__(self, plan: Plan) -> None:
        self.pins = plan.pins_version
        self._dags = plan.dag_versions

    def of_dag(self, dag: str) -> int:
        """Return the version of a DAG's stream; each is appended to once in a run."""
        return self._dags[dag]


@asynccontextmanager
async def alone(database: Database, scope: Scope) -> AsyncIterator[None]:
    """Hold the right to remove things of an organization, as long as this process lives."""
    connection = await database.connect()
    try:
        name = f"noetl.retention/{scope.tenant_id}/{scope.organization_id}"
        if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name):
            raise Conflict(
                f"another process runs retention in {scope.tenant_id}/{scope.organization_id}",
                hint="let it finish, then run again",
            )
        yield
    finally:
        await connection.close(timeout=2)


def _let_go_event(one: Letting) -> tuple[str, dict[str, Any], dict[str, Any]]:
    generation = one.generation
    meta = {
        "dataset_uuid": generation.dataset_uuid,
        "dataset_version": generation.dataset_version,
        "generation": generation.generation,
        "reason": one.reason,
        "served_until": None if one.served_until is None else time_text(one.served_until),
    }
    return "generation.purged" if one.purged else "generation.retired", meta, {}


def _trim_events(trim: Trim) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    meta = {
        "dataset_uuid": trim.generation.dataset_uuid,
        "dataset_version": trim.generation.dataset_version,
        "reason": trim.reason,
    }
    chunks: list[list[tuple[str, int]]] = [[]]
    size = 0
    for version in trim.versions:
        own = len(orjson.dumps(version)) + 1
        if size + own > EVENT_BYTES and chunks[-1]:
            chunks.append([])
            size = 0
        chunks[-1].append(version)
        size += own
    return [("generation.trimmed", dict(meta), {"versions": chunk}) for chunk in chunks]
