"""Garbage collection removes only what nothing refers to, however it is interrupted, and can say why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from noetl import faults
from noetl.errors import Conflict, PayloadCollected, PayloadMissing
from noetl.kernel.payloads.garbage_collection import CollectReport, collect, explain, store_again
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.testing.samples.references import MemoryReferences

SCOPE = Scope("acme", "care")
MEDIA = "text/plain"
GRACE = timedelta(hours=24)


class World:
    """A store, the events that refer to it, and a clock."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 16, 12, tzinfo=UTC)
        self.store = MemoryPayloadStore(lambda: self.now)
        self.references = MemoryReferences()

    async def put(self, data: bytes) -> PayloadRef:
        return await self.store.store(SCOPE, data, MEDIA)

    async def collect(self, *, ttl: timedelta | None = None, dry_run: bool = False) -> CollectReport:
        return await collect(self.store, self.references, SCOPE, now=self.now, grace=GRACE, ttl=ttl, dry_run=dry_run)

    async def why(self, ref: PayloadRef, ttl: timedelta | None = None) -> str:
        return await explain(self.store, self.references, SCOPE, ref.sha256, now=self.now, grace=GRACE, ttl=ttl)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


async def test_only_old_objects_without_a_reference_go(world: World) -> None:
    """INV-15."""
    referred, garbage = await world.put(b"referred"), await world.put(b"garbage")
    world.references.append(SCOPE, referred.sha256, "event 1")
    world.now += timedelta(hours=25)
    young = await world.put(b"young")
    report = await world.collect()
    reasons = {decision.sha256: (decision.action, decision.reason) for decision in report.decisions}
    assert reasons == {
        referred.sha256: ("kept", "1 event refers to it"),
        young.sha256: ("kept", "younger than the grace of 24 h"),
        garbage.sha256: ("removed", "unreferenced, written 2026-05-16 12:00:00 UTC"),
    }
    assert (report.removed, report.removed_bytes) == (1, len(b"garbage"))
    assert {found.sha256 async for found in world.store.objects(SCOPE)} == {referred.sha256, young.sha256}


async def test_a_dry_run_says_the_same_and_removes_nothing(world: World) -> None:
    garbage = await world.put(b"garbage")
    world.now += timedelta(hours=25)
    report = await world.collect(dry_run=True)
    assert [decision.action for decision in report.decisions] == ["would remove"]
    assert await world.store.exists(SCOPE, garbage)
    world.references.append(SCOPE, garbage.sha256, "still admitted")


async def test_a_time_to_live_keeps_unreferenced_objects_longer_and_referred_ones_for_ever(world: World) -> None:
    referred, garbage = await world.put(b"referred"), await world.put(b"garbage")
    world.references.append(SCOPE, referred.sha256, "event 1")
    world.now += timedelta(days=29)
    assert (await world.collect(ttl=timedelta(days=30))).removed == 0
    assert await world.why(garbage, timedelta(days=30)) == (
        "kept: unreferenced, but younger than the time to live of 30 d"
    )
    world.now += timedelta(days=2)
    assert (await world.collect(ttl=timedelta(days=30))).removed == 1
    assert await world.store.exists(SCOPE, referred)


async def test_an_object_goes_when_its_last_event_is_no_longer_retained(world: World) -> None:
    ref = await world.put(b"data")
    world.references.append(SCOPE, ref.sha256, "event 1")
    world.now += timedelta(days=400)
    assert (await world.collect()).removed == 0
    world.references.forget(SCOPE, ref.sha256)
    assert (await world.collect()).removed == 1


async def test_each_fate_is_explained_in_one_sentence(world: World) -> None:
    """INV-15."""
    ref = await world.put(b"data")
    assert await world.why(ref) == "kept: younger than the grace of 24 h"
    world.now += timedelta(hours=25)
    assert await world.why(ref) == "unreferenced, written 2026-05-16 12:00:00 UTC: would be removed"
    for number in range(4):
        world.references.append(SCOPE, ref.sha256, f"event {number}")
    assert await world.why(ref) == "kept: 4 events refer to it (event 0, event 1, event 2, …)"
    await world.store.delete(SCOPE, ref.sha256)
    world.references.forget(SCOPE, ref.sha256)
    assert await world.why(ref) == "missing: there is no object under that digest"


async def test_an_event_for_a_collected_object_is_refused_until_it_is_stored_again(world: World) -> None:
    ref = await world.put(b"data")
    world.now += timedelta(hours=25)
    await world.collect()
    with pytest.raises(PayloadCollected):
        world.references.append(SCOPE, ref.sha256, "late")
    assert await store_again(world.store, world.references, SCOPE, b"data", ref) == ref
    world.references.append(SCOPE, ref.sha256, "late")
    assert await world.store.fetch(SCOPE, ref) == b"data"


async def test_what_is_about_to_be_deleted_cannot_be_stored_again_yet(world: World) -> None:
    ref = await world.put(b"data")
    world.now += timedelta(hours=25)
    faults.arm("collect.after_tombstone=raise")
    with pytest.raises(faults.FaultInjected):
        await world.collect()
    with pytest.raises(PayloadCollected, match="try again"):
        await store_again(world.store, world.references, SCOPE, b"data", ref)


@pytest.mark.parametrize("point", ["collect.after_tombstone", "collect.after_delete"])
async def test_an_interrupted_collection_is_finished_by_the_next(world: World, point: str) -> None:
    ref = await world.put(b"data")
    world.now += timedelta(hours=25)
    faults.arm(f"{point}=raise")
    with pytest.raises(faults.FaultInjected):
        await world.collect()
    with pytest.raises(PayloadCollected):
        world.references.append(SCOPE, ref.sha256, "late")
    faults.arm("")
    await world.collect()
    assert await world.references.condemned(SCOPE) == []
    with pytest.raises(PayloadMissing):
        await world.store.fetch(SCOPE, ref)
    await store_again(world.store, world.references, SCOPE, b"data", ref)
    world.references.append(SCOPE, ref.sha256, "late")
    assert await world.store.fetch(SCOPE, ref) == b"data"


async def test_an_object_refreshed_while_it_is_condemned_is_spared(world: World) -> None:
    ref = await world.put(b"data")
    world.now += timedelta(hours=25)

    class Refreshing(MemoryReferences):
        async def condemn(self, scope: Scope, sha256: str) -> bool:
            await world.put(b"data")
            return await super().condemn(scope, sha256)

    world.references = Refreshing()
    (decision,) = (await world.collect()).decisions
    assert (decision.action, decision.reason) == ("kept", "younger than the grace of 24 h")
    world.references.append(SCOPE, ref.sha256, "its event")


async def test_a_reference_that_appears_during_the_collection_keeps_the_object(world: World) -> None:
    """INV-15."""
    ref = await world.put(b"data")
    world.now += timedelta(hours=25)

    class Racing(MemoryReferences):
        async def condemn(self, scope: Scope, sha256: str) -> bool:
            self.append(scope, sha256, "just in time")
            return await super().condemn(scope, sha256)

    world.references = Racing()
    (decision,) = (await world.collect()).decisions
    assert (decision.action, decision.reason) == ("kept", "an event came to refer to it meanwhile")
    assert await world.store.fetch(SCOPE, ref) == b"data"


async def test_two_collectors_never_work_on_one_scope(world: World) -> None:
    async with world.references.exclusively(SCOPE):
        with pytest.raises(Conflict):
            await world.collect()


async def test_other_scopes_are_left_alone(world: World) -> None:
    theirs = Scope("acme", "billing")
    ref = await world.store.store(theirs, b"data", MEDIA)
    world.now += timedelta(hours=25)
    assert (await world.collect()).decisions == ()
    assert await world.store.exists(theirs, ref)
