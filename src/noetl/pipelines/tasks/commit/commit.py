"""What an attempt wrote becomes visible: manifests are stored, then pointers, cursors, schema and the task's end move as one.

Nothing is looked up first: versions are those of the grant, and only when the ledger says that they moved on is it
read again. A stale attempt never gets that far, because its fence is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import Conflict, PayloadCollected, VersionConflict
from noetl.faults import reach
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.after_commit import after_commit
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.dataset import ALL, MANIFEST_TYPE, Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskReport, TaskStatus
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks.commit.drafts import CommitDrafts
from noetl.pipelines.tasks.commit.lineage import LineageChange, Lineages
from noetl.pipelines.tasks.commit.outputs import Standing, read_newer, read_newer_whole, read_standing
from noetl.pipelines.tasks.commit.writes import Refused, Writes, outrun, planned_writes
from noetl.pipelines.tasks.failed_attempts import Ending
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.pipelines.tasks.port import BaseMoved, Place

TRIES: Final = 100
"""How often a commit that others keep overtaking is tried."""
_STORED_AT_ONCE: Final = 16
_STATE: Final = "SELECT state, version FROM noetl.operator_state WHERE generation = $1 AND state_key = 'default'"
_ASKED: Final = "SELECT dependents ? $2 FROM noetl.data_invalidation WHERE invalidation_id = $1"
_decoder = msgspec.json.Decoder(Manifest)


class StateMoved(Conflict):
    """The operator's state is not what the attempt was given."""

    code = "state_moved"


class Committing:
    """Commits tasks of one database."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        payloads: PayloadStore,
        drafts: CommitDrafts,
        ending: Ending,
        recorded: Callable[[Scope, int], None],
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._payloads = payloads
        self._drafts = drafts
        self._ending = ending
        self._recorded = recorded
        self._lineages = Lineages(database, payloads)

    async def commit(
        self, scope: Scope, facts: JobFacts, grant: TaskGrant, report: TaskReport, manifests: Mapping[str, Manifest]
    ) -> TaskStatus:
        """Commit all of an attempt, or fail its task for good if a check or its schema forbids it."""
        broken = [check for check in report.checks if not check.passed and check.severity == "block"]
        if broken:
            told = "; ".join(f"{check.label}: {check.detail or f'{check.violations} violations'}" for check in broken)
            return await self._ending.for_good(scope, grant, report, f"the output breaks its checks: {told}", "check")
        reach("task.before_commit")
        standing = Standing.of_grant(grant)
        for _ in range(TRIES):
            try:
                writes = planned_writes(grant, report, standing)
            except Refused as refused:
                return await self._ending.for_good(scope, grant, report, refused.message, "schema")
            if writes.unsure:
                standing = await self._now(scope, facts, grant, report)
                continue
            newer = await self._newer(scope, grant, writes, standing)
            if newer is not None:
                answer = await self._answer(scope, facts, grant)
                return await self._ending.overtaken(scope, grant, report, newer, answer)
            lineages = await self._lineages.changes(scope, grant, report)
            if not _of_one_version(writes, lineages):
                standing = await self._now(scope, facts, grant, report)
                continue
            try:
                await self._record(scope, facts, grant, report, writes, lineages, manifests)
            except PayloadCollected:
                continue
            except StateMoved as moved:
                return await self._again(scope, grant, report, moved)
            except VersionConflict:
                standing = await self._now(scope, facts, grant, report)
                continue
            reach("task.after_commit")
            after_commit("remembering lineage", self._lineages.recorded, scope, lineages)
            self._recorded(scope, grant.execution_id)
            return "Completed"
        return await self._again(scope, grant, report, Conflict(f"other commits overtook it {TRIES} times"))

    async def _newer(self, scope: Scope, grant: TaskGrant, writes: Writes, standing: Standing) -> str | None:
        """Return the task whose outcome this one would replace by what was made of older inputs; None if there is none.

        One that commits between this look and ours changes the partition's version, and then it is looked again.
        """
        replaced = {target.output for target in grant.targets if target.update_strategy == "replace"}
        there = [place for place in writes.parts if place in standing.parts or place in standing.gone]
        asked = [place for place in there if place[0] in replaced]
        whole = any(target.partition_by for target in grant.targets) and grant.partition_key == ALL and bool(replaced)
        if grant.strategy != "PerPartition" or not (asked or whole):
            return None
        async with self._database.transaction(scope) as connection:
            return await (read_newer_whole(connection, grant) if whole else read_newer(connection, grant, asked))

    async def _again(self, scope: Scope, grant: TaskGrant, report: TaskReport, problem: Conflict) -> TaskStatus:
        """Let another attempt begin with what stands now."""
        failed = msgspec.structs.replace(
            report, status="error", error=problem.message, error_kind=problem.code, retryable=True
        )
        return await self._ending.failed(scope, grant, failed)

    async def _record(
        self,
        scope: Scope,
        facts: JobFacts,
        grant: TaskGrant,
        report: TaskReport,
        writes: Writes,
        lineages: Sequence[LineageChange],
        manifests: Mapping[str, Manifest],
    ) -> None:
        lease = grant.lease
        stored = await self._manifests(scope, writes, manifests)
        if stored:
            reach("task.after_manifest")
        appends = [self._drafts.committed(scope, grant, place, *kept) for place, kept in stored.items()]
        appends += [self._drafts.dropped(scope, grant, place, version) for place, version in writes.dropped.items()]
        appends += self._drafts.datasets(scope, grant, writes.schemas, lineages)
        if report.operator_state is not None:
            appends.append(await self._state(scope, facts, grant, report.operator_state))
        appends.append(self._drafts.completed(scope, facts, grant, report, stored))
        appends += await self._answer(scope, facts, grant)
        fence = fences.held(TASK, lease.proof)
        await self._ledger.transact(Transition(tuple(appends), (fence,)))

    async def _answer(self, scope: Scope, facts: JobFacts, grant: TaskGrant) -> tuple[Append, ...]:
        """Tell the invalidation that asked for a task, if one did, that it is done."""
        if not identity.is_again(grant.lease.task_id):
            return ()
        async with self._database.transaction(scope) as connection:
            asked = await connection.fetchval(_ASKED, grant.execution_id, facts.generation)
        return (self._drafts.processed(scope, facts.generation, grant),) if asked else ()

    async def _manifests(
        self, scope: Scope, writes: Writes, manifests: Mapping[str, Manifest]
    ) -> dict[Place, tuple[Manifest, PayloadRef]]:
        if not writes.parts:
            return {}
        gate = asyncio.Semaphore(_STORED_AT_ONCE)

        async def store(place: Place) -> tuple[Manifest, PayloadRef]:
            async with gate:
                write = writes.parts[place]
                base = None if write.base is None else await self._manifest(scope, write.base, manifests)
                manifest = write.manifest(base)
                return manifest, await self._payloads.store(
                    scope, msgspec.json.encode(manifest), MANIFEST_TYPE, rows=manifest.row_count
                )

        places = sorted(writes.parts)
        return dict(zip(places, await asyncio.gather(*map(store, places)), strict=True))

    async def _manifest(self, scope: Scope, ref: PayloadRef, manifests: Mapping[str, Manifest]) -> Manifest:
        found = manifests.get(ref.sha256)
        return _decoder.decode(await self._payloads.fetch(scope, ref)) if found is None else found

    async def _now(self, scope: Scope, facts: JobFacts, grant: TaskGrant, report: TaskReport) -> Standing:
        """Read what stands now; rows that were made unique against something else must be so again first."""
        async with self._database.transaction(scope) as connection:
            now = await read_standing(connection, facts, report)
        moved = {place: now.parts[place] for place in outrun(grant, report, now) if place in now.parts}
        if moved:
            landed = {place: await self._manifest(scope, part.manifest, {}) for place, part in moved.items()}
            raise BaseMoved(moved, landed)
        return now

    async def _state(self, scope: Scope, facts: JobFacts, grant: TaskGrant, state: dict[str, Any]) -> Append:
        """Save what the operator keeps, but only on top of what this attempt was given."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_STATE, facts.generation)
        kept, version = ({}, 0) if row is None else (orjson.loads(row["state"]), row["version"])
        if kept != grant.operator_state:
            raise StateMoved(f"another task of {grant.job} changed the operator's state meanwhile")
        return self._drafts.state(scope, facts.generation, grant, state, version)


def _of_one_version(writes: Writes, lineages: Sequence[LineageChange]) -> bool:
    """Whether schema and lineage of each generation build on the same version of its stream."""
    versions = {change.target.dataset_version: change.version for change in lineages}
    return all(versions.get(one.target.dataset_version, one.version) == one.version for one in writes.schemas)
