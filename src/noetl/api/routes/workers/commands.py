"""The worker's protocol for commands: claim with a long poll, complete, give back, run children. Proven by leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from noetl.api.access.sealing import SealedAnswer, sealed
from noetl.api.endpoint import ANYONE, ONLY_WORKERS, WORKERS, Call, Routes
from noetl.api.routes.workers.lease_proofs import CommandLease
from noetl.api.wire import Body, Name, OfWorker, Text, View
from noetl.engine.dispatch.grants import Child, ChildEnd, CommandGrant
from noetl.engine.dispatch.local import LocalDispatch
from noetl.engine.plan.locality import Distance, Wish
from noetl.engine.plan.trigger import CommandEnded
from noetl.engine.worker.step_names import names_without_secrets
from noetl.errors import Denied, KeyReused, LeaseLost, NoetlError, NotFound, Unsupported
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.language.playbook.secret_tasks import may_ask_for
from noetl.services.credentials.secret import revealed, secrets_in

routes = Routes("commands")

_SLICE_SECONDS = 1.0
"""How long a claim waits before it looks whether its caller is still there: what is leased to nobody is lost time."""

_OPEN = """
SELECT step_name, tool_kind, status, attempt, worker, lease_until, available_at FROM noetl.command
WHERE execution_id = $1 AND command_id = $2
"""
_ENDED = """
SELECT node_name, event_type FROM noetl.event WHERE execution_id = $1 AND command_id = $2
AND event_type IN ('command.completed', 'command.failed', 'command.issued') ORDER BY position DESC LIMIT 1
"""


class Locality(Body, frozen=True, kw_only=True):
    """Where the worker would like the inputs of its work to lie, and the farthest it takes any from.

    What lies elsewhere is left to nearer workers for a moment; without a wish the worker's name tells where it is.
    """

    prefer_node: Name | None = None
    prefer_zone: Name | None = None
    prefer_region: Name | None = None
    max_distance: Distance = "any"

    def wish(self) -> Wish:
        """Return the same for the dispatcher."""
        return Wish(**msgspec.structs.asdict(self))


class ClaimRequest(OfWorker, frozen=True, kw_only=True):
    """Who wants work, how much, and how long it waits for the first."""

    want: Annotated[int, Meta(ge=1, le=100)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0
    locality: Locality | None = None
    loops: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """How many of them may be slots of loops, each of which works on one frame at a time; null: all."""


class ClaimAnswer(View, frozen=True, kw_only=True):
    """Commands leased to the worker."""

    commands: list[CommandGrant]


class CompleteRequest(OfWorker, frozen=True, kw_only=True):
    """How a command ended."""

    lease: CommandLease
    report: CommandEnded
    take_next: bool = False


class CompleteAnswer(View, frozen=True, kw_only=True):
    """What the worker may do next, leased to it."""

    next: CommandGrant | None


class GiveBackRequest(Body, frozen=True, kw_only=True):
    """Why an attempt came to nothing, and when another may follow."""

    lease: CommandLease
    reason: Text
    delay_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    counts: bool = True
    """Whether it counts as an attempt that failed; it does not where a worker stops or the platform is away."""


class StalledRequest(Body, frozen=True, kw_only=True):
    """Which part of the platform a command waits for, and why; without a reason, that it answers again."""

    lease: CommandLease
    part: Name
    reason: Text | None = None
    number: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class StartedRequest(Body, frozen=True, kw_only=True):
    """By which names Spark knows the work on a command."""

    lease: CommandLease
    application_id: Text
    job_tag: Text


class AskedSecret(Body, frozen=True, kw_only=True):
    """A secret that a task of the kind secrets asks for, rendered."""

    name: Text
    auth: Name | None = None
    ttl: int
    options: dict[str, Any]


class KeychainRequest(Body, frozen=True, kw_only=True):
    """Whose playbook's keychain is asked for, or which secret one of its tasks asks for."""

    lease: CommandLease
    secret: AskedSecret | None = None


class ChildRequest(Body, frozen=True, kw_only=True):
    """A child execution a command asks for, and how long to wait for its end."""

    lease: CommandLease
    child: Child
    wait_seconds: Annotated[float, Meta(ge=1, le=60)] = 20.0


class ChildAnswer(View, frozen=True, kw_only=True):
    """How the child ended; null while it runs: ask again."""

    end: ChildEnd | None


class CommandView(View, frozen=True, kw_only=True):
    """A command as it stands."""

    execution_id: str
    command_id: str
    step: str
    status: str
    attempt: int | None = None
    tool_kind: str | None = None
    worker: str | None = None
    lease_until: datetime | None = None
    available_at: datetime | None = None


@routes.post("/api/commands/claim", WORKERS)
async def claim_commands(call: Call, body: ClaimRequest) -> ClaimAnswer:
    """Lease up to `want` commands, waiting up to `wait_seconds` for the first."""
    dispatch = call.services.engine.dispatch(call.scope)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + body.wait_seconds
    wish = None if body.locality is None else body.locality.wish()
    while True:
        left = max(0.0, deadline - loop.time())
        grants = await dispatch.claim(body.worker_id, body.want, min(left, _SLICE_SECONDS), wish, body.loops)
        over = left <= _SLICE_SECONDS or call.services.stopping.is_set()
        if grants or over or await call.request.is_disconnected():
            break
    if grants:
        await _handed(call, dispatch, grants)
    for grant in grants:
        call.services.leased.keep(call.scope, grant)
    return ClaimAnswer(commands=grants)


async def _handed(call: Call, dispatch: LocalDispatch, grants: Sequence[CommandGrant]) -> None:
    """See that the worker may still have what was claimed for it while it waited; else others get it at once."""
    try:
        await call.still_admitted()
    except NoetlError:
        # The worker could neither renew these leases nor report on them, and they would have to run out.
        for grant in grants:
            await dispatch.give_back(grant, "the worker is no longer admitted", delay_seconds=0.0, counts=False)
        raise


@routes.post("/api/commands/complete", WORKERS)
async def complete_command(call: Call, body: CompleteRequest) -> CompleteAnswer:
    """Record the end of a command and what follows; the same report again gets the same answer."""
    ref, scope = body.lease.ref(), call.scope

    async def complete() -> CompleteAnswer:
        grant = await call.services.leased.command(scope, ref)
        dispatch = call.services.engine.dispatch(scope)
        try:
            following = await dispatch.complete(grant, body.report, worker=body.worker_id, take_next=body.take_next)
        except (LeaseLost, KeyReused):
            raise await call.services.leased.lost(scope, ref) from None
        call.services.leased.forget(scope, ref)
        if following is not None:
            call.services.leased.keep(scope, following)
        return CompleteAnswer(next=following)

    answer: CompleteAnswer = await call.services.leased.once(("complete", scope, ref), complete)
    return answer


@routes.post("/api/commands/keychain", ONLY_WORKERS)
async def resolve_keychain(call: Call, body: KeychainRequest) -> SealedAnswer:
    """Resolve the keychain of a command's playbook, for the worker that holds the command alone.

    Sealed are the values by entry, as `keychain`, and which texts of them must not leave the worker again, as `secrets`. With
    `secret`, the values are the fields of that secret, which a task of the playbook has to ask for.
    """
    ref = body.lease.ref()
    # A grant that this server remembers may have run out since; nobody is given secrets for it.
    await call.services.leased.lease_until(call.scope, ref)
    grant = await call.services.leased.command(call.scope, ref)
    playbook = await call.services.engine.dispatch(call.scope).playbook(grant.catalog_id)
    if not playbook.keychain and body.secret is None:
        return sealed(call, {"keychain": {}, "secrets": []})
    if call.services.secrets is None:
        raise Unsupported(
            "this server has no master key, so it resolves no keychain",
            hint="give it NOETL_SECRET_KEY or a key directory, as docs/operations.md says",
        )
    if body.secret is not None:
        found = await call.services.secrets(call.scope).asked_for(grant, _entry(body.secret, playbook))
        return sealed(call, {"keychain": revealed(found), "secrets": sorted(set(secrets_in(found)))})
    names = await names_without_secrets(call.scope, call.services.payloads, grant, playbook)
    found = await call.services.secrets(call.scope).resolved(grant, playbook, names)
    return sealed(call, {"keychain": revealed(found), "secrets": sorted(set(secrets_in(found)))})


def _entry(asked: AskedSecret, playbook: Playbook) -> KeychainEntry:
    entry = KeychainEntry(name=asked.name, kind="secret_manager", auth=asked.auth, ttl=asked.ttl, options=asked.options)
    if not may_ask_for(playbook, entry):
        raise Denied(f"no task of the playbook {playbook.path} asks for the secret {asked.name!r}")
    return entry


@routes.post("/api/commands/started", WORKERS, status=204)
async def start_command(call: Call, body: StartedRequest) -> None:
    """Record under which names Spark is about to work on a command."""
    ref, scope = body.lease.ref(), call.scope

    async def start() -> None:
        grant = await call.services.leased.command(scope, ref)
        try:
            await call.services.engine.dispatch(scope).started(grant, body.application_id, body.job_tag)
        except LeaseLost:
            raise await call.services.leased.lost(scope, ref) from None

    await call.services.leased.once(("started", scope, ref), start)


@routes.post("/api/commands/stalled", WORKERS, status=204)
async def stall_command(call: Call, body: StalledRequest) -> None:
    """Record that the holder of a command waits for a part of the platform, or goes on."""
    ref, scope = body.lease.ref(), call.scope
    grant = await call.services.leased.command(scope, ref)
    try:
        await call.services.engine.dispatch(scope).stalled(grant, body.part, body.reason, body.number)
    except LeaseLost:
        raise await call.services.leased.lost(scope, ref) from None


@routes.post("/api/commands/give-back", WORKERS, status=204)
async def give_back_command(call: Call, body: GiveBackRequest) -> None:
    """Say that an attempt came to nothing through no fault of the work."""
    ref, scope = body.lease.ref(), call.scope

    async def give_back() -> None:
        grant = await call.services.leased.command(scope, ref)
        dispatch = call.services.engine.dispatch(scope)
        try:
            await dispatch.give_back(grant, body.reason, delay_seconds=body.delay_seconds, counts=body.counts)
        except (LeaseLost, KeyReused):
            raise await call.services.leased.lost(scope, ref) from None
        call.services.leased.forget(scope, ref)

    await call.services.leased.once(("give-back", scope, ref), give_back)


@routes.post("/api/commands/children", WORKERS, waits=True)
async def run_child(call: Call, body: ChildRequest) -> ChildAnswer:
    """Start a child execution unless it runs already, and wait for its end."""
    grant = await call.services.leased.command(call.scope, body.lease.ref())
    dispatch = call.services.engine.dispatch(call.scope)
    waiting = asyncio.ensure_future(dispatch.run_child(grant, body.child))
    stopping = asyncio.ensure_future(call.services.stopping.wait())
    try:
        await asyncio.wait({waiting, stopping}, timeout=body.wait_seconds, return_when=asyncio.FIRST_COMPLETED)
        return ChildAnswer(end=waiting.result() if waiting.done() else None)
    finally:
        stopping.cancel()
        waiting.cancel()
        await asyncio.gather(stopping, waiting, return_exceptions=True)


@routes.get("/api/commands/{execution_id}/{command_id:path}", ANYONE)
async def get_command(call: Call, execution_id: int, command_id: str) -> CommandView:
    """Return a command: open ones with their lease, ended ones with how they ended."""
    async with call.services.database.transaction(call.scope) as connection:
        row = await connection.fetchrow(_OPEN, execution_id, command_id)
        ended = None if row is not None else await connection.fetchrow(_ENDED, execution_id, command_id)
    known: dict[str, Any] = {"execution_id": str(execution_id), "command_id": command_id}
    if row is not None:
        shown = {name: value for name, value in row.items() if name != "step_name"}
        return CommandView(**known, step=row["step_name"], **shown)
    if ended is None:
        raise NotFound(f"execution {execution_id} has no command {command_id}")
    # One that was issued and neither stands open nor ended by itself went with its execution.
    word = ended["event_type"].rpartition(".")[2].upper()
    return CommandView(**known, step=ended["node_name"] or "", status="CANCELLED" if word == "ISSUED" else word)
