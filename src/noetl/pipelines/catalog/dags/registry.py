"""DAGs by name: bundles of files go in, immutable versions come out, one of which serves readers.

Every change is one append to the DAG's stream and stands or falls as a whole; the rows follow from it. Nothing is
built here: a deploy says what has to be, and others do it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from noetl.errors import (
    AlreadyRecorded,
    Conflict,
    Corrupt,
    Erased,
    InputError,
    NotFound,
    PayloadCollected,
    VersionConflict,
)
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.ids import Id64
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.bundles import BUNDLE_TYPE, Bundle, job_hash
from noetl.pipelines.catalog.dags.events import DagEvents
from noetl.pipelines.catalog.dags.reader import DagReader
from noetl.pipelines.catalog.dags.rows import DagVersion, datasets_of, state_of, with_files
from noetl.pipelines.catalog.dags.status import obstacles
from noetl.pipelines.catalog.dags.switches import (
    activations,
    check_activatable,
    check_kept,
    released_by,
    serving_before,
)
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.deploy.plan import deploy_plan, registrations, renamings
from noetl.pipelines.plan.deploy.values import BundleFacts, DagState, DeployPlan

TRIES: Final = 20
"""How often a change that others overtake is tried."""
T = TypeVar("T")

_STREAM = "SELECT version FROM noetl.stream WHERE stream_id = $1"
_GENERATIONS = "SELECT dataset_version::text FROM noetl.dataset_version WHERE dataset_version::text = ANY ($1)"


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a deploy; `created` is false when these files stood already, and then nothing was written."""

    dag_version_id: str
    execution_id: Id64
    created: bool
    plan: DeployPlan


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Which version serves readers now, and which one did before."""

    dag: str
    dag_version_id: str
    previous: str | None
    changed: bool


class Switched(Serving, frozen=True, kw_only=True):
    """A switch from one version to another.

    `released` are generations that no version under way or in use needs any more: their tasks may be cancelled.
    """

    released: tuple[str, ...] = ()


class Dags(DagReader):
    """Reads and changes the DAGs of all organizations, each seen only within its own."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        payloads: PayloadStore,
        mint: Callable[[], int],
        producer: str,
    ) -> None:
        super().__init__(database, payloads)
        self._ledger = ledger
        self._mint = mint
        self._events = DagEvents(mint, producer)

    async def plan(self, scope: Scope, bundle: Bundle) -> DeployPlan:
        """Say what a deploy would do, and why; nothing is changed."""
        return deploy_plan(_facts(scope, bundle), await self._state(scope, bundle.dag.name))

    async def deploy(self, scope: Scope, bundle: Bundle, requested_by: str) -> Deployed:
        """Make a version of these files unless there is one already; a version whose build failed is begun again."""
        facts = _facts(scope, bundle)

        async def attempt() -> Deployed:
            known = await self._stream_version(scope, bundle.dag.name)
            state = await self._state(scope, bundle.dag.name)
            plan = deploy_plan(facts, state)
            if plan.status not in (None, "failed"):
                standing = await self.version(scope, bundle.dag.name, plan.dag_version_id)
                return Deployed(
                    dag_version_id=plan.dag_version_id,
                    execution_id=standing.deploy_execution_id,
                    created=False,
                    plan=plan,
                )
            if plan.problems:
                raise InputError(
                    f"DAG {plan.dag} cannot be deployed: {'; '.join(plan.problems)}", problems=list(plan.problems)
                )
            ref = await self._payloads.store(scope, bundle.data, BUNDLE_TYPE)
            begun = await self._generations(scope, list(plan.pointers.values()))
            execution_id = self._mint()
            named = registrations(plan, state)
            requested = self._events.requested(scope, execution_id, plan, requested_by)
            deployed = self._events.deployed(scope, execution_id, facts, plan, ref, named, begun, known, requested_by)
            await self._ledger.transact(Transition((requested, deployed)))
            return Deployed(dag_version_id=plan.dag_version_id, execution_id=execution_id, created=True, plan=plan)

        return await _tried(attempt, f"the deploy of DAG {bundle.dag.name}")

    async def mark_ready(self, scope: Scope, dag: str, dag_version_id: str, *, by: str) -> DagVersion:
        """Say that a version is built whole; refused while tasks of its new generations are open or failed."""

        async def attempt() -> None:
            known = await self._stream_version(scope, dag)
            version = await self.version(scope, dag, dag_version_id)
            if version.status not in ("building", "failed"):
                return
            async with self._database.transaction(scope) as connection:
                against = await obstacles(connection, version)
            if against:
                raise InputError(
                    f"version {dag_version_id} of DAG {dag} is not ready: {'; '.join(against)}",
                    hint=f"`noetl dag status {dag}` shows its tasks",
                )
            await self._mark(scope, version, "dag.ready", known, by)

        await _tried(attempt, f"marking DAG {dag} ready")
        return await self.version(scope, dag, dag_version_id)

    async def mark_failed(self, scope: Scope, dag: str, dag_version_id: str, error: str, *, by: str) -> DagVersion:
        """Say that the build of a version failed, and why."""

        async def attempt() -> None:
            known = await self._stream_version(scope, dag)
            version = await self.version(scope, dag, dag_version_id)
            if version.status == "building":
                await self._mark(scope, version, "dag.build_failed", known, by, error)

        await _tried(attempt, f"marking DAG {dag} failed")
        return await self.version(scope, dag, dag_version_id)

    async def activate(self, scope: Scope, dag: str, dag_version_id: str, *, by: str) -> Switched:
        """Let a version serve readers: all datasets of the DAG are switched at once, by one event."""
        return await self._switch(scope, dag, dag_version_id, "dag.activated", by)

    async def rollback(self, scope: Scope, dag: str, to: str | None = None, *, by: str) -> Switched:
        """Let a version serve readers again that did so before: the one before the current one unless told."""
        async with self._database.transaction(scope) as connection:
            switches = await activations(connection, scope, dag)
        if to is None:
            to = serving_before(switches)
            if to is None:
                raise InputError(
                    f"DAG {dag} has no earlier version to go back to", hint=f"`noetl dag list {dag}` shows its versions"
                )
        elif to not in {switch.dag_version_id for switch in switches}:
            raise InputError(
                f"version {to} of DAG {dag} never served readers, so there is no going back to it",
                hint="activate it instead",
            )
        return await self._switch(scope, dag, to, "dag.rolled_back", by)

    async def _switch(self, scope: Scope, dag: str, dag_version_id: str, kind: str, by: str) -> Switched:
        async def attempt() -> Switched:
            known = await self._stream_version(scope, dag)
            version = await self.version(scope, dag, dag_version_id)
            serving = await self.current(scope, dag)
            previous = serving.dag_version_id if serving is not None else None
            if version.dag_version_id == previous:
                return Switched(dag=dag, dag_version_id=previous, previous=previous, changed=False)
            async with self._database.transaction(scope) as connection:
                datasets = await datasets_of(connection, dag)
                await check_kept(connection, version)
                check_activatable(version, datasets, await obstacles(connection, version))
                released = await released_by(connection, version.dag_version_id, previous)
            renamed = renamings(dag, version.publish, datasets)
            told = self._events.switched(scope, dag, kind, version.dag_version_id, previous, renamed, known, by)
            await self._ledger.transact(Transition((told,)))
            return Switched(
                dag=dag, dag_version_id=version.dag_version_id, previous=previous, changed=True, released=released
            )

        return await _tried(attempt, f"switching DAG {dag}")

    async def _mark(
        self, scope: Scope, version: DagVersion, kind: str, known: int, by: str, error: str | None = None
    ) -> None:
        told: Append = self._events.marked(
            scope, version.dag, version.deploy_execution_id, kind, version.dag_version_id, known, by, error
        )
        await self._ledger.transact(Transition((told,)))

    async def _state(self, scope: Scope, dag: str) -> DagState:
        async with self._database.transaction(scope) as connection:
            state = await state_of(connection, dag)
        if state.current is None:
            return state
        try:
            bundle = await self.load_bundle(scope, state.current.dag_version_id)
        except (NotFound, Corrupt, Erased, InputError):
            # Without the old files the plan is the same; only its reasons say less.
            return state
        return with_files(state, _file_digests(bundle))

    async def _stream_version(self, scope: Scope, dag: str) -> int:
        # Read before all else: whoever changes the DAG in between makes the append fail, and all is read again.
        async with self._database.transaction(scope) as connection:
            return await connection.fetchval(_STREAM, identity.dag_stream(scope, dag).stream_id) or 0

    async def _generations(self, scope: Scope, versions: list[str]) -> frozenset[str]:
        async with self._database.transaction(scope) as connection:
            return frozenset(row[0] for row in await connection.fetch(_GENERATIONS, versions))


async def _tried(attempt: Callable[[], Awaitable[T]], what: str) -> T:
    for _ in range(TRIES):
        try:
            return await attempt()
        except (VersionConflict, AlreadyRecorded, PayloadCollected):
            continue
    raise Conflict(f"{what} was overtaken by others {TRIES} times; try again")


def _facts(scope: Scope, bundle: Bundle) -> BundleFacts:
    return BundleFacts(
        scope=scope,
        dag=bundle.dag,
        bundle_digest=bundle.digest,
        code_digest=bundle.code_digest,
        yaml_hash=bundle.yaml_hash,
        job_hashes={job.name: job_hash(bundle, job) for job in bundle.dag.jobs},
        files=_file_digests(bundle),
    )


def _file_digests(bundle: Bundle) -> dict[str, dict[str, str]]:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in bundle.files.items()}
    return {job: {name: digests[name] for name in names} for job, names in bundle.job_files.items()}
