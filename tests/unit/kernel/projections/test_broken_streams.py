"""Fields in the payload store are read before they are folded; a stream whose fields cannot be read stands still alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.payloads import fields
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.payloads.fields import FieldsReader
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.port import referred_key
from noetl.kernel.projections import stream_repair
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Fold, Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.rebuild import rebuild
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.stream_events import StreamEvents
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.replay import Replay
from noetl.kernel.replay.report import VerifyReport
from noetl.kernel.replay.verify import Verifier
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.memory import MemoryStream
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Draft, Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.frozen_ledger import FrozenLedger
from noetl.testing.samples.projected_ledger import HOME, IDS, NEIGHBOUR, stored_rows

POSTED = "business.invoice.posted"


@business_object("invoice", events=[POSTED])
def invoice(row: Row | None, event: Event) -> Row:
    row = row or {"lines": 0, "events": 0}
    return {"lines": row["lines"] + len(event.context["lines"]), "events": row["events"] + 1}


@business_object("invoice", events=[POSTED])
def forgetful(row: Row | None, event: Event) -> Row:
    """The same, but for what it takes as large."""
    lines = event.context["lines"] if len(event.context["lines"]) < 100 else []
    row = row or {"lines": 0, "events": 0}
    return {"lines": row["lines"] + len(lines), "events": row["events"] + 1}


def folds(fold: Fold = invoice) -> FoldRegistry:
    registry = FoldRegistry()
    registry.add(fold)
    return registry


class World:
    """A ledger, a payload store and a projection store."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.payloads = MemoryPayloadStore()
        self.store = MemoryProjectionStore()
        self.lost: dict[str, Any] = {}

    async def post(self, scope: Scope, name: str, lines: int) -> PayloadRef | None:
        """Record that an invoice got so many lines; return where they lie if they are many."""
        context = {"lines": [{"item": number} for number in range(lines)]}
        draft = Drafts(scope, IDS.mint).business(f"business_object/invoice/{name}", IDS.mint(), POSTED, context=context)
        return await self.record(draft)

    async def record(self, draft: Draft) -> PayloadRef | None:
        slim = await externalize(self.payloads, draft)
        await self.ledger.append(draft.stream, [slim])
        return slim.fields_ref

    def projector(self, fold: Fold = invoice, **options: Any) -> Projector:
        return Projector(self.ledger, self.store, folds(fold), Upcasters(), payloads=self.payloads, **options)

    async def project(self, fold: Fold = invoice, **options: Any) -> None:
        await self.projector(fold, **options).run_until(await self.ledger.head())

    async def row(self, scope: Scope, name: str) -> Row | None:
        rows = [row async for row in self.store.query(scope, "business_object/invoice")]
        return next((row.folded.row for row in rows if row.folded.key.row_id == name), None)

    async def events(self) -> list[Event]:
        return [event for shard in range(SHARD_COUNT) async for event in self.ledger.read_shard(shard)]

    async def replayed(self, scope: Scope) -> dict[str, Row]:
        parts = (FrozenLedger(await self.events(), 7), self.payloads, self.store, folds(), Upcasters())
        state = await Replay(*parts).state(scope, projection="business_object/invoice")
        return {row["id"]: row["row"] for row in state.rows["business_object/invoice"]}

    async def verified(self, scope: Scope) -> VerifyReport:
        parts = (FrozenLedger(await self.events(), 7), self.payloads, self.store, folds(), Upcasters())
        return await Verifier(*parts).verify(scope)

    def lose(self, scope: Scope, ref: PayloadRef | None) -> Callable[[], None]:
        """Let an object vanish; what is returned brings it back."""
        assert ref is not None
        key = referred_key(scope, ref)
        kept = self.payloads.kept.pop(key)
        return lambda: self.payloads.kept.update({key: kept})


@pytest.fixture
def world() -> World:
    return World()


async def beside(world: World) -> tuple[str, str]:
    """Name an invoice of each of two tenants, both in one shard."""
    own = HOME.stream("business_object/invoice/i1").shard
    other = next(
        name
        for name in map("n{}".format, range(1000))
        if NEIGHBOUR.stream(f"business_object/invoice/{name}").shard == own
    )
    return "i1", other


async def test_fields_in_the_payload_store_are_folded_live_and_in_a_replay(world: World) -> None:
    """INV-153."""
    await world.post(HOME, "i1", 10)
    assert await world.post(HOME, "i1", 20_000) is not None
    await world.project()
    assert await world.row(HOME, "i1") == {"lines": 20_010, "events": 2}
    assert await world.replayed(HOME) == {"i1": {"lines": 20_010, "events": 2}}
    assert (await world.verified(HOME)).clean
    report = await rebuild(world.ledger, world.store, folds(), Upcasters(), payloads=world.payloads)
    assert report.changed == 0


async def test_a_fold_is_given_no_event_whose_fields_nobody_read(world: World) -> None:
    """INV-153."""
    await world.post(HOME, "i1", 20_000)
    (event,) = await world.events()
    with pytest.raises(NoetlError, match="were not read"):
        FoldState([invoice]).apply(event)
    projector = Projector(world.ledger, world.store, folds(), Upcasters())
    with pytest.raises(NoetlError, match="were not read"):
        await projector.run_until(await world.ledger.head())


async def test_a_fold_that_drops_a_field_that_was_read_is_found(world: World) -> None:
    """INV-156."""
    await world.post(HOME, "i1", 10)
    await world.post(HOME, "i1", 20_000)
    await world.project(forgetful)
    (difference,) = (await world.verified(HOME)).differences
    assert difference.sentence().endswith("row.lines should be 20010 and is 10")


async def test_fields_that_are_lost_on_the_way_to_every_fold_alike_are_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-156. Live and replay share what reads fields, so their rows are equal without them."""
    whole = fields.with_fields
    monkeypatch.setattr(fields, "with_fields", lambda event, moved: whole(event, {"context": {"lines": []}}))
    await world.post(HOME, "i1", 20_000)
    await world.project()
    report = await world.verified(HOME)
    assert all(part.equal for part in report.projections)
    assert not report.clean
    assert report.differences[0].field == "context.lines, as whoever folds it gets it"


async def test_what_a_fold_is_not_given_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-156."""
    apply_many = FoldState.apply_many

    def without(self: FoldState, events: Sequence[Event]) -> int:
        import msgspec

        return apply_many(self, [msgspec.structs.replace(event, context={"lines": []}) for event in events])

    monkeypatch.setattr(FoldState, "apply_many", without)
    await world.post(HOME, "i1", 20_000)
    await world.project()
    report = await world.verified(HOME)
    assert all(part.equal for part in report.projections)
    assert [one.field for one in report.differences] == ["context.lines, as business_object/invoice gets it"]


async def test_a_stream_that_cannot_be_read_stands_still_and_its_shard_goes_on(world: World) -> None:
    """INV-154."""
    own, other = await beside(world)
    await world.post(HOME, own, 10)
    bring_back = world.lose(HOME, await world.post(HOME, own, 20_000))
    await world.post(HOME, own, 1)
    await world.post(NEIGHBOUR, other, 30_000)
    await world.project()
    assert await world.row(HOME, own) == {"lines": 10, "events": 1}
    assert await world.row(NEIGHBOUR, other) == {"lines": 30_000, "events": 1}
    assert await world.store.checkpoints() == await world.ledger.head()
    (broken,) = await world.store.broken_streams()
    assert (broken.stream_id, broken.position, broken.code) == ("business_object/invoice/i1", 2, "payload_missing")
    assert await world.replayed(HOME) == {"i1": {"lines": 10, "events": 1}}
    report = await world.verified(HOME)
    assert all(part.equal for part in report.projections)
    (difference,) = report.differences
    assert (difference.where, difference.id) == ("stream", "business_object/invoice/i1")
    assert broken.sha256 in difference.expected
    assert str(broken.event_id) in difference.field
    assert (await world.verified(NEIGHBOUR)).clean
    # It stays so until the object is back, and then nothing was lost.
    await world.post(HOME, own, 2)
    await world.project()
    assert await world.row(HOME, own) == {"lines": 10, "events": 1}
    bring_back()
    assert not (await world.verified(HOME)).clean
    await world.project()
    assert await world.row(HOME, own) == {"lines": 20_013, "events": 4}
    assert await world.store.broken_streams() == []
    assert (await world.verified(HOME)).clean


async def test_bytes_that_are_not_those_of_the_reference_are_not_folded(world: World) -> None:
    """INV-153."""
    ref = await world.post(HOME, "i1", 20_000)
    assert ref is not None
    key = referred_key(HOME, ref)
    world.payloads.kept[key] = (world.payloads.kept[key][0].replace(b"1", b"2"), world.payloads.kept[key][1])
    await world.project()
    assert await world.row(HOME, "i1") is None
    assert [one.code for one in await world.store.broken_streams()] == ["corrupt"]


async def test_all_streams_of_an_execution_stand_still_together(world: World) -> None:
    """INV-154. Its rows hear all of them."""
    drafts, run, stage = Drafts(HOME, IDS.mint), IDS.mint(), IDS.mint()
    await world.record(drafts.execution(run, "execution.requested"))
    ref = await world.record(drafts.execution(run, context={"note": "x" * 70_000}))
    bring_back = world.lose(HOME, ref)
    await world.record(drafts.stage(run, stage))
    await world.record(drafts.execution(run, "playbook.completed"))
    await world.project(batch_events=2)
    rows = [row.folded.row async for row in world.store.query(HOME, "execution")]
    assert [row["status"] for row in rows] == ["PENDING"]
    assert [row async for row in world.store.query(HOME, "stage")] == []
    bring_back()
    await world.project(batch_events=1)
    rows = [row.folded.row async for row in world.store.query(HOME, "execution")]
    assert [(row["status"], row["events"]) for row in rows] == [("COMPLETED", 4)]
    assert (await world.verified(HOME)).clean


async def test_a_rebuild_leaves_broken_streams_where_they_break(world: World) -> None:
    """INV-154."""
    await world.post(HOME, "i1", 10)
    ref = await world.post(HOME, "i1", 20_000)
    await world.project()
    bring_back = world.lose(HOME, ref)
    await rebuild(world.ledger, world.store, folds(), Upcasters(), payloads=world.payloads)
    assert await world.row(HOME, "i1") == {"lines": 10, "events": 1}
    bring_back()
    await world.project()
    assert await world.row(HOME, "i1") == {"lines": 20_010, "events": 2}


class Telling(MemoryProjectionStore):
    """A store that tells when a stream goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.mended = asyncio.Event()

    async def save_projections(self, *what: Any, **named: Any) -> bool:
        saved = await super().save_projections(*what, **named)
        if saved and what[6].mended:
            self.mended.set()
        return saved


async def test_a_stream_goes_on_by_itself_once_its_fields_are_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-154."""
    monkeypatch.setattr(stream_repair, "FIRST_PAUSE", 0.01)
    world.store = store = Telling()
    bring_back = world.lose(HOME, await world.post(HOME, "i1", 20_000))
    batches = asyncio.Queue[int]()

    async def note(shard: int, _events: list[Event]) -> None:
        batches.put_nowait(shard)

    projector = world.projector(on_batch=note)
    await projector.start()
    async with asyncio.timeout(20):
        await batches.get()
        assert len(await store.broken_streams()) == 1
        bring_back()
        await store.mended.wait()
    await projector.stop()
    assert await world.row(HOME, "i1") == {"lines": 20_000, "events": 1}


async def test_a_store_that_is_away_breaks_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.post(HOME, "i1", 20_000)

    async def away(_self: object, _scope: Scope, _ref: PayloadRef) -> bytes:
        raise Unavailable("the payload store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryPayloadStore, "fetch", away)
        with pytest.raises(Unavailable):
            await world.project()
    assert await world.store.broken_streams() == []
    await world.project()
    assert await world.row(HOME, "i1") == {"lines": 20_000, "events": 1}


async def test_no_more_fields_are_in_memory_than_there_is_room_for(world: World) -> None:
    """INV-153."""
    refs = [await world.post(HOME, "i1", lines) for lines in (8_000, 9_000, 3, 10_000, 11_000)]
    sizes = [0 if ref is None else ref.bytes for ref in refs]
    reader = FieldsReader(world.payloads, together_bytes=sizes[0] + sizes[1])
    groups = [list(group) for group in reader.divided(await world.events())]
    assert [len(group) for group in groups] == [3, 1, 1]
    assert [event for group in groups for event in group] == await world.events()


async def test_a_projector_without_a_ledger_keeps_what_it_cannot_fold(world: World) -> None:
    """INV-154."""
    own, other = await beside(world)
    bring_back = world.lose(HOME, await world.post(HOME, own, 20_000))
    await world.post(NEIGHBOUR, other, 30_000)
    await world.post(HOME, own, 5)
    stream, batches = MemoryStream("noetl_events"), asyncio.Queue[int]()
    await stream.publish([message_of(event) for event in await world.events()])
    events = StreamEvents(stream, "far", world.store.checkpoints, redelivery_seconds=0.05, poll_seconds=0.01)

    async def projected(shard: int, given: list[Event]) -> None:
        await events.projected(shard, given)
        batches.put_nowait(shard)

    def far() -> Projector:
        return Projector(
            events, world.store, folds(), Upcasters(), listen=events.listen, on_batch=projected,
            payloads=world.payloads,
        )  # fmt: skip

    events.hold(range(SHARD_COUNT))
    projector, head = far(), await world.ledger.head()
    await projector.start()
    async with asyncio.timeout(20):
        while not (await world.store.checkpoints()).covers(head):
            await batches.get()
    await projector.stop()
    assert await world.row(HOME, own) is None
    assert await world.row(NEIGHBOUR, other) == {"lines": 30_000, "events": 1}
    bring_back()
    # Another process, to which nothing is delivered again.
    await far().run_until(head)
    await events.close()
    assert await world.row(HOME, own) == {"lines": 20_005, "events": 2}
    assert [event async for event in world.store.held_events(_at(HOME, own))] == []
    assert set(await stored_rows(world.store)) == set(await stored_rows(world.store, HOME, NEIGHBOUR))


def _at(scope: Scope, name: str) -> BrokenStream:
    stream = scope.stream(f"business_object/invoice/{name}")
    return BrokenStream(
        tenant_id=scope.tenant_id, organization_id=scope.organization_id, stream_id=stream.stream_id,
        shard=stream.shard, position=1, event_id=1, sha256="", code="", message="",
    )  # fmt: skip
