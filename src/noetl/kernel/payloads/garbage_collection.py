"""Garbage collection: removes objects that no retained event refers to, and can say for each why it stays or goes.

An object may be stored but not yet referred to, because its event is still on the way. So young objects stay (the
grace), and before an old one goes it is condemned in the ledger, which from then on refuses events that refer to it:
between the last look and the deletion no reference can appear.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from noetl import faults
from noetl.errors import PayloadCollected
from noetl.kernel.payloads.port import PayloadStore, StoredObject
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_BATCH = 500


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one object, and why."""

    sha256: str
    stored_bytes: int
    action: Literal["kept", "removed", "would remove"]
    reason: str


class CollectReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one collection did in a scope, object by object."""

    scope: Scope
    dry_run: bool
    decisions: tuple[Decision, ...]

    @property
    def removed(self) -> int:
        """How many objects went, or would go."""
        return sum(decision.action != "kept" for decision in self.decisions)

    @property
    def removed_bytes(self) -> int:
        """How many stored bytes went, or would go."""
        return sum(decision.stored_bytes for decision in self.decisions if decision.action != "kept")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """When an object may go. With `ttl`, the safety net: an unreferenced object also stays until it is that old."""

    grace: timedelta
    ttl: timedelta | None = None

    def protects(self, found: StoredObject, now: datetime) -> str | None:
        """Return why the object stays whatever refers to it, or None if its references decide."""
        age = now - found.modified
        if age <= self.grace:
            return f"younger than the grace of {_span(self.grace)}"
        if self.ttl is not None and age <= self.ttl:
            return f"unreferenced, but younger than the time to live of {_span(self.ttl)}"
        return None


async def collect(
    store: PayloadStore,
    references: References,
    scope: Scope,
    *,
    now: datetime,
    grace: timedelta,
    ttl: timedelta | None = None,
    dry_run: bool = False,
) -> CollectReport:
    """Remove every object of the scope that nothing refers to and that is old enough; report each decision."""
    policy = Policy(grace=grace, ttl=ttl)
    decisions: list[Decision] = []
    async with references.exclusively(scope):
        if not dry_run:
            await _finish_interrupted(store, references, scope)
        async for batch in _batches(store.objects(scope)):
            counts = await references.count(scope, [found.sha256 for found in batch])
            for found in batch:
                reason = _kept_because(found, counts.get(found.sha256, 0), policy, now)
                if reason is not None:
                    decisions.append(_decision(found, "kept", reason))
                elif dry_run:
                    decisions.append(_decision(found, "would remove", _unreferenced(found)))
                else:
                    decisions.append(await _remove(store, references, scope, found, policy, now))
    return CollectReport(scope=scope, dry_run=dry_run, decisions=tuple(decisions))


async def explain(
    store: PayloadStore,
    references: References,
    scope: Scope,
    sha256: str,
    *,
    now: datetime,
    grace: timedelta,
    ttl: timedelta | None = None,
) -> str:
    """Say in one sentence why an object is kept or would go."""
    found = await store.find(scope, sha256)
    if found is None:
        return "missing: there is no object under that digest"
    referring = await references.explain(scope, sha256)
    if referring:
        shown = ", ".join(referring[:3]) + (", …" if len(referring) > 3 else "")
        return f"kept: {_refer(len(referring))} ({shown})"
    reason = Policy(grace=grace, ttl=ttl).protects(found, now)
    return f"kept: {reason}" if reason else f"{_unreferenced(found)}: would be removed"


async def store_again(
    store: PayloadStore,
    references: References,
    scope: Scope,
    data: bytes | AsyncIterable[bytes],
    ref: PayloadRef,
) -> PayloadRef:
    """Store a payload whose event was refused with PayloadCollected, and let events refer to it again.

    While the collector has yet to delete the object, PayloadCollected is raised once more: what is stored before the
    deletion would fall to it.
    """
    if ref.sha256 in await references.condemned(scope):
        raise PayloadCollected(f"the object {ref.sha256} is being collected; try again", sha256=ref.sha256)
    again = await store.store(scope, data, ref.media_type, rows=ref.rows, schema_digest=ref.schema_digest)
    await references.spare(scope, again.sha256)
    return again


async def _finish_interrupted(store: PayloadStore, references: References, scope: Scope) -> None:
    unfinished = await references.condemned(scope)
    counts = await references.count(scope, unfinished)
    for sha256 in unfinished:
        if counts.get(sha256, 0):
            await references.spare(scope, sha256)
        else:
            await _delete(store, references, scope, sha256)


async def _remove(
    store: PayloadStore, references: References, scope: Scope, found: StoredObject, policy: Policy, now: datetime
) -> Decision:
    if not await references.condemn(scope, found.sha256):
        return _decision(found, "kept", "an event came to refer to it meanwhile")
    faults.reach("collect.after_tombstone")
    # A writer may have refreshed the object since it was listed; its event is then about to come.
    again = await store.find(scope, found.sha256)
    protection = again and policy.protects(again, now)
    if protection or (await references.count(scope, [found.sha256])).get(found.sha256, 0):
        await references.spare(scope, found.sha256)
        return _decision(found, "kept", protection or "an event came to refer to it meanwhile")
    await _delete(store, references, scope, found.sha256)
    return _decision(found, "removed", _unreferenced(found))


async def _delete(store: PayloadStore, references: References, scope: Scope, sha256: str) -> None:
    await store.delete(scope, sha256)
    faults.reach("collect.after_delete")
    await references.removed(scope, sha256)


def _kept_because(found: StoredObject, count: int, policy: Policy, now: datetime) -> str | None:
    return _refer(count) if count else policy.protects(found, now)


def _refer(count: int) -> str:
    return "1 event refers to it" if count == 1 else f"{count} events refer to it"


def _unreferenced(found: StoredObject) -> str:
    return f"unreferenced, written {found.modified:%Y-%m-%d %H:%M:%S} UTC"


def _decision(found: StoredObject, action: Literal["kept", "removed", "would remove"], reason: str) -> Decision:
    return Decision(sha256=found.sha256, stored_bytes=found.stored_bytes, action=action, reason=reason)


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:g} d" if hours >= 48 else f"{hours:g} h"


async def _batches(objects: AsyncIterator[StoredObject]) -> AsyncIterator[Sequence[StoredObject]]:
    batch: list[StoredObject] = []
    async for found in objects:
        batch.append(found)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class References(Protocol):
    """Which payloads the retained history refers to, and which of them are *condemned*: about to be deleted.

    A condemned payload goes through `condemn`, deletion and `removed`. From `condemn` until `spare`, the ledger refuses
    new events that refer to it with PayloadCollected. Both marks are durable, so a collector that dies in between is
    finished by the next one.
    """

    async def count(self, scope: Scope, sha256s: Sequence[str]) -> dict[str, int]:
        """Return, for each digest, how many retained events refer to it, archived events and manifests included."""
        ...

    async def explain(self, scope: Scope, sha256: str) -> list[str]:
        """Name what refers to a digest: event ids and archive manifests."""
        ...

    def exclusively(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Hold the right to collect in a scope; Conflict if another collector holds it."""
        ...

    async def condemn(self, scope: Scope, sha256: str) -> bool:
        """Condemn a payload; False, and nothing done, if an event refers to it by now.

        The look at the events and the mark must be one step as seen by appends: an append either comes before and is
        counted, or comes after and is refused.
        """
        ...

    async def removed(self, scope: Scope, sha256: str) -> None:
        """Record that the object of a condemned payload is deleted; only then may it be stored and admitted again."""
        ...

    async def spare(self, scope: Scope, sha256: str) -> None:
        """Lift the mark, so that events may refer to the payload again; idempotent."""
        ...

    async def condemned(self, scope: Scope) -> list[str]:
        """Return the digests that are condemned and not yet recorded as removed."""
        ...
