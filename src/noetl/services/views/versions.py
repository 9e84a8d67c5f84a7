"""The versions of views: what is deployed, taken by a runner, swapped and dropped, each as an event; the rows follow.

Every change is an append to the view's stream at the version that was read, so of several at once one stands.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.engine.dispatch.drafts import Drafting, new_lease
from noetl.errors import Conflict, LeaseLost, NotFound
from noetl.kernel.leases import operations, statements
from noetl.kernel.leases.kinds import VIEW
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.port import PayloadStore
from noetl.language.view.definition import Definition
from noetl.language.view.document import ViewDocument
from noetl.model.catalogue.views import VIEW_STREAM
from noetl.model.ids import organization_root_id
from noetl.model.lease import Proof
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

CODE_TYPE: Final = "application/vnd.noetl.view+zip"
OPEN: Final = ("building", "current")
_TRIES: Final = 20
_ERROR_CHARACTERS: Final = 1_000
_VERSION: Final = "(SELECT s.version FROM noetl.stream AS s WHERE s.stream_id = 'view/' || v.view) AS version"
_FIELDS: Final = f"""
v.version_id::text AS version_id, v.view, v.build, v.digest, v.code_digest, v.document, v.bundle_ref, v.sink,
v.target_mark, v.status, v.attempt, v.worker, v.lease_token::text AS lease_token,
NOT {VIEW.unheld("v")} AS is_held, v.available_at, v.error, v.deployed_by, v.deployed_at, v.activated_at, v.ended_at,
{_VERSION}
"""
_ALL: Final = f"SELECT {_FIELDS} FROM noetl.view_version AS v ORDER BY v.view, v.deployed_at, v.build"  # noqa: S608
_OF: Final = f"SELECT {_FIELDS} FROM noetl.view_version AS v WHERE v.view = $1 ORDER BY v.deployed_at, v.build"  # noqa: S608
_DUE: Final = f"""
SELECT {_FIELDS} FROM noetl.view_version AS v WHERE {VIEW.free("v")} ORDER BY {VIEW.first("v")}
"""  # noqa: S608
_SCOPES: Final = statements.scopes(VIEW)
_STANDING: Final = statements.standing(VIEW, _VERSION, "v")

Status = Literal["building", "current", "superseded", "dropped"]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a view as its row has it."""

    version_id: str
    view: str
    build: int
    digest: str
    code_digest: str
    definition: Definition
    bundle_ref: PayloadRef | None
    sink: str
    target_mark: str
    status: Status
    attempt: int
    worker: str | None
    lease_token: str | None
    is_held: bool
    """Whether somebody runs it under a lease that lasts."""
    available_at: datetime | None
    error: str | None
    deployed_by: str
    deployed_at: datetime
    activated_at: datetime | None
    ended_at: datetime | None
    version: int
    """How far the view's stream was when the row was read."""


class ViewLease(msgspec.Struct, frozen=True, kw_only=True):
    """What a process holds while it runs a version."""

    scope: Scope
    version_id: str
    view: str
    attempt: int
    token: str
    seconds: float

    @property
    def proof(self) -> Proof:
        """What the process shows with all it does for the version."""
        return Proof((self.version_id,), self.attempt, self.token)


class Versions:
    """The views of all organizations, each seen only within its own."""

    def __init__(self, database: Database, ledger: Ledger, payloads: PayloadStore, drafting: Drafting) -> None:
        self._database = database
        self._ledger = ledger
        self._payloads = payloads
        self._drafting = drafting

    async def listed(self, scope: Scope) -> list[Version]:
        """Return all versions of all views that are not dropped, by view and age."""
        async with self._database.transaction(scope) as connection:
            return [one for one in map(_version, await connection.fetch(_ALL)) if one.status != "dropped"]

    async def of(self, scope: Scope, view: str) -> list[Version]:
        """Return the versions of one view, the oldest first; none that were dropped."""
        async with self._database.transaction(scope) as connection:
            found = await versions_of(connection, view)
        return [one for one in found if one.status != "dropped"]

    async def serving(self, scope: Scope, view: str) -> Version:
        """Return the version that serves, or the one that is being built where none does yet."""
        found = [one for one in await self.of(scope, view) if one.status in OPEN]
        if not found:
            raise NotFound(f"there is no view {view}", hint="`noetl views list` lists them")
        return next((one for one in found if one.status == "current"), found[-1])

    async def deploy(self, scope: Scope, document: ViewDocument, by: str) -> tuple[Version, bool]:
        """Have a version built beside the one that serves; tell whether it is new: what stands already is left alone."""
        code = document.bundle()
        ref = await self._payloads.store(scope, code, CODE_TYPE) if code else None
        return await self._deployed(scope, document.definition, document.digest, ref, by, anew=False)

    async def rebuild(self, scope: Scope, view: str, by: str) -> Version:
        """Have the version that serves built again from the first event on, beside itself."""
        own = await self.serving(scope, view)
        return (await self._deployed(scope, own.definition, own.digest, own.bundle_ref, by, anew=True))[0]

    async def _deployed(
        self, scope: Scope, definition: Definition, digest: str, ref: PayloadRef | None, by: str, *, anew: bool
    ) -> tuple[Version, bool]:
        name = definition.name
        for _ in range(_TRIES):
            async with self._database.transaction(scope) as connection:
                standing = await versions_of(connection, name)
            newest = [one for one in standing if one.status in OPEN][-1:]
            if newest and newest[0].digest == digest and not anew:
                return newest[0], False
            build = max((one.build for one in standing), default=0) + 1
            # Drawn, not made: the state Spark keeps under it must never be met again, not even by a new database.
            own = str(uuid.uuid4())
            meta = {
                "view": name, "version_id": own, "digest": digest, "build": build, "sink": definition.sink,
                "target": (await self._ledger.head()).token(), "by": by,
                "code_digest": "" if ref is None else ref.sha256,
            }  # fmt: skip
            context = {"document": msgspec.to_builtins(definition)}
            version = standing[-1].version if standing else 0
            try:
                await self._say(scope, name, version, "view.deployed", meta, context=context, payload_ref=ref)
            except Conflict:
                continue
            return next(one for one in await self.of(scope, name) if one.version_id == own), True
        raise Conflict(f"view {name} keeps changing; try again")

    async def drop(self, scope: Scope, view: str, by: str) -> list[Version]:
        """Drop a view; return its versions, whose rows nobody needs any more."""
        for _ in range(_TRIES):
            found = await self.of(scope, view)
            if not found:
                raise NotFound(f"there is no view {view}", hint="`noetl views list` lists them")
            try:
                await self._say(scope, view, found[-1].version, "view.dropped", {"view": view, "by": by})
                return found
            except Conflict:
                continue
        raise Conflict(f"view {view} keeps changing; try again")

    async def scopes(self) -> list[Scope]:
        """Return the organizations that have views nobody runs."""
        async with self._database.transaction(None, "reaper") as connection:
            return [Scope(*row) for row in sorted(tuple(row) for row in await connection.fetch(_SCOPES))]

    async def due(self, scope: Scope) -> list[Version]:
        """Return the versions that nobody runs and that may be run now."""
        async with self._database.transaction(scope) as connection:
            return [_version(row) for row in await connection.fetch(_DUE)]

    async def claim(self, scope: Scope, version: Version, worker: str, seconds: float) -> ViewLease | None:
        """Take the lease to run a version; None if somebody else was first."""
        lease = new_lease(worker, version.attempt + 1, seconds)
        try:
            meta = {"version_id": version.version_id, **lease}
            await self._say(scope, version.view, version.version, "view.claimed", meta)
        except Conflict:
            return None
        return ViewLease(
            scope=scope, version_id=version.version_id, view=version.view, attempt=lease["attempt"],
            token=lease["lease_token"], seconds=seconds,
        )  # fmt: skip

    async def heartbeat(self, leases: Sequence[ViewLease]) -> list[ViewLease]:
        """Make leases last longer and return those that are lost."""
        kept: set[Proof] = set()
        for scope in {lease.scope for lease in leases}:
            own = [lease for lease in leases if lease.scope == scope]
            async with self._database.transaction(scope) as connection:
                seconds = [lease.seconds for lease in own]
                kept |= (await operations.renew(connection, VIEW, [lease.proof for lease in own], seconds)).keys()
        return [lease for lease in leases if lease.proof not in kept]

    async def end(self, lease: ViewLease, error: str | None = None, delay_seconds: float = 0.0) -> None:
        """Record the end of a run, and why if it came to nothing; `LeaseLost` if somebody else has the view by now."""
        meta: dict[str, Any] = {"version_id": lease.version_id, "attempt": lease.attempt}
        if error is not None:
            meta["delay_seconds"] = delay_seconds
            error = error[:_ERROR_CHARACTERS].replace("\x00", "")
        kind = "view.released" if error is None else "view.attempt_failed"
        await self._held(lease, kind, meta, error=error)

    async def activate(self, lease: ViewLease, mark: str) -> None:
        """Let the version of a lease serve, in place of the one before."""
        await self._held(lease, "view.activated", {"version_id": lease.version_id, "mark": mark})

    async def _held(self, lease: ViewLease, kind: str, meta: dict[str, Any], **fields: Any) -> None:
        for _ in range(_TRIES):
            async with self._database.transaction(lease.scope) as connection:
                own = await connection.fetchrow(_STANDING, lease.version_id, lease.attempt, lease.token)
            if own is None:
                raise LeaseLost(f"view {lease.view} is no longer run by this process")
            try:
                await self._say(lease.scope, lease.view, own["version"], kind, meta, **fields)
                return
            except Conflict:
                continue
        raise Conflict(f"view {lease.view} keeps changing")

    async def _say(
        self, scope: Scope, view: str, version: int, event_type: str, meta: dict[str, Any], **fields: Any
    ) -> None:
        stream = scope.stream(f"{VIEW_STREAM}{view}")
        root = organization_root_id(scope.tenant_id, scope.organization_id)
        draft = self._drafting.one(scope, stream, root, event_type, stream.stream_id, meta=meta, **fields)
        await self._ledger.transact(Transition((Append(stream, [draft], version),)))


async def hold(connection: Connection, lease: ViewLease | None, view: str) -> None:
    """Let nobody else take a version before the transaction ends; `LeaseLost` if somebody has."""
    if lease is None or not await operations.hold(connection, VIEW, [lease.proof]):
        raise LeaseLost(f"view {view} is no longer run by this process")


async def versions_of(connection: Connection, view: str) -> list[Version]:
    """Return all versions of a view, the oldest first."""
    return [_version(row) for row in await connection.fetch(_OF, view)]


def _version(row: Any) -> Version:
    given = {name: row[name] for name in Version.__struct_fields__ if name not in ("definition", "bundle_ref")}
    ref = row["bundle_ref"]
    return Version(
        **given,
        definition=msgspec.convert(orjson.loads(row["document"]), Definition),
        bundle_ref=None if ref is None else msgspec.convert(orjson.loads(ref), PayloadRef),
    )
