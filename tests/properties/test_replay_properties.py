"""What must hold for any history: replay equals the live projections at every prefix, with snapshots or without."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.histories import INVOICE_POSTED, histories

from noetl.kernel.ledger.port import Ledger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.port import object_key
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.as_of import HEAD, AsOf
from noetl.kernel.replay.pages import MerkleRange
from noetl.kernel.replay.replay import Replay, ReplayedState
from noetl.kernel.replay.verify import Verifier
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope, execution_stream
from noetl.testing.samples.frozen_ledger import FrozenLedger


@business_object("invoice", events=[INVOICE_POSTED], ended=lambda row: row["total"] > 8)
def invoice(row: Row | None, event: Event) -> Row:
    row = row or {"total": 0}
    row["total"] += event.meta["amount"]
    return row


class World:
    """A history with everything that reads it."""

    def __init__(self, events: Sequence[Event], page: int = 7) -> None:
        self.ledger = FrozenLedger(events, page)
        self.payloads = MemoryPayloadStore()
        self.store = MemoryProjectionStore()
        self.folds = FoldRegistry()
        self.folds.add(invoice)
        parts = (self.ledger, self.payloads, self.store, self.folds, Upcasters())
        self.replay = Replay(*parts, snapshot_interval=3)
        self.verifier = Verifier(*parts)

    async def project(self, upto: Mark, size: int = 5) -> None:
        projector = Projector(cast(Ledger, self.ledger), self.store, self.folds, Upcasters(), batch_events=size)
        await projector.run_until(upto)


def executions(events: Sequence[Event]) -> list[tuple[Scope, int]]:
    """Name the executions that have events of their own."""
    found = {
        (event.stream.scope, event.execution_id) for event in events if event.stream.execution_id == event.execution_id
    }
    return sorted(found, key=repr)


def facts(state: ReplayedState) -> tuple[Any, ...]:
    """Return what must not depend on the way it was found."""
    return state.rows, state.checksums, state.checksum, state.position


@given(histories(), st.data())
@settings(max_examples=40, deadline=None)
def test_any_prefix_replayed_equals_the_live_projections_at_that_prefix(
    events: list[Event], data: st.DataObject
) -> None:
    """INV-17."""
    cut = data.draw(st.integers(0, len(events)))

    async def check() -> None:
        world = World(events)
        mark = await FrozenLedger(events[:cut]).head()
        await world.project(mark, data.draw(st.integers(1, 6)))
        for scope in {event.stream.scope for event in events}:
            report = await world.verifier.verify(scope)
            assert report.clean, [difference.sentence() for difference in report.differences]
            state = await world.replay.state(scope, as_of=AsOf(mark=mark), projection="all")
            live = {
                (fold.projection, stored.folded.key.row_id): (stored.folded.row, stored.checksum)
                for fold in world.folds.folds()
                async for stored in world.store.query(scope, fold.projection)
            }
            assert live == {
                (name, row["id"]): (row["row"], row["checksum"]) for name, rows in state.rows.items() for row in rows
            }

    asyncio.run(check())


@given(histories(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_snapshot_and_the_tail_equal_the_full_replay_at_any_cut(events: list[Event], data: st.DataObject) -> None:
    """INV-20."""

    async def check() -> None:
        world = World(events, data.draw(st.integers(1, 9)))
        for scope, execution_id in executions(events):
            shard = execution_stream(scope, execution_id).shard
            positions = [
                event.position for event in events if event.execution_id == execution_id and event.shard == shard
            ]
            for upto in data.draw(st.lists(st.sampled_from(positions), max_size=3)):
                if any(event.position <= upto for event in events if _own(event, scope, execution_id)):
                    await world.replay.snapshots.take(scope, execution_id, upto)
            as_of = data.draw(st.sampled_from([HEAD, *(AsOf(position=position) for position in positions)]))
            asked = {"as_of": as_of, "projection": "all", "rows": "kept"}
            short = await world.replay.state(scope, execution_id, **asked)
            full = await world.replay.state(scope, execution_id, **asked, use_snapshots=False)
            assert facts(short) == facts(full)
            assert short.warnings == []

    asyncio.run(check())


def _own(event: Event, scope: Scope, execution_id: int) -> bool:
    return event.stream.scope == scope and event.stream.execution_id == execution_id == event.execution_id


@given(histories(max_strays=2), st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_snapshot_changes_nothing_but_a_warning(events: list[Event], data: st.DataObject) -> None:
    """INV-20."""

    async def check() -> None:
        for scope, execution_id in executions(events):
            world = World(events)
            snapshot = await world.replay.snapshots.take(scope, execution_id)
            full = await world.replay.state(scope, execution_id, projection="all", rows="kept", use_snapshots=False)
            key = object_key(scope, snapshot.payload_ref.sha256)
            stored, written = world.payloads.kept[key]
            damaged = bytearray(stored)
            damaged[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            world.payloads.kept[key] = (bytes(damaged), written)
            state = await world.replay.state(scope, execution_id, projection="all", rows="kept")
            assert (state.snapshot, len(state.warnings)) == (None, 1)
            assert facts(state) == facts(full)

    asyncio.run(check())


@given(histories(max_strays=2), st.sampled_from(["version", "more", "fewer", "upcasters"]))
@settings(max_examples=30, deadline=None)
def test_a_snapshot_of_other_code_changes_nothing_but_a_warning(events: list[Event], kind: str) -> None:
    async def check() -> None:
        for scope, execution_id in executions(events):
            world = World(events)
            snapshot = await world.replay.snapshots.take(scope, execution_id)
            versions = dict(snapshot.fold_versions)
            if kind == "version":
                versions["loop"] += 1
            elif kind == "more":
                versions["business_object/other"] = 1
            elif kind == "fewer":
                del versions["stage"]
            digest = "00" * 32 if kind == "upcasters" else snapshot.upcaster_digest
            changed = msgspec.structs.replace(snapshot, fold_versions=versions, upcaster_digest=digest)
            world.store._snapshots[scope, "execution", str(execution_id), snapshot.version] = changed
            state = await world.replay.state(scope, execution_id, projection="all", rows="kept")
            full = await world.replay.state(scope, execution_id, projection="all", rows="kept", use_snapshots=False)
            assert (state.snapshot, len(state.warnings)) == (None, 1)
            assert facts(state) == facts(full)

    asyncio.run(check())


@given(histories(), st.data())
@settings(max_examples=30, deadline=None)
def test_batches_delivered_again_change_neither_projections_nor_snapshots(
    events: list[Event], data: st.DataObject
) -> None:
    async def check() -> None:
        world = World(events)
        head = await world.ledger.head()
        for _ in range(data.draw(st.integers(1, 3))):
            await world.project(head, data.draw(st.integers(1, 6)))
            batch = data.draw(st.lists(st.sampled_from(events), max_size=5)) if events else []
            await world.replay.keeper.maybe_take(sorted(batch, key=lambda event: event.position))
        for scope in {event.stream.scope for event in events}:
            assert (await world.verifier.verify(scope)).clean
        for scope, execution_id in executions(events):
            short = await world.replay.state(scope, execution_id)
            assert short.warnings == []
            assert facts(short) == facts(await world.replay.state(scope, execution_id, use_snapshots=False))

    asyncio.run(check())


@given(histories())
@settings(max_examples=30, deadline=None)
def test_an_execution_folded_alone_has_the_rows_it_has_in_its_organization(events: list[Event]) -> None:
    async def check() -> None:
        world = World(events)
        for scope, execution_id in executions(events):
            alone = await world.replay.state(scope, execution_id, projection="all")
            whole = await world.replay.state(scope, projection="all")
            for name in ("execution", "stage", "frame", "loop", "fanout"):
                own = [row for row in whole.rows[name] if row["id"].partition("/")[0] == str(execution_id)]
                assert alone.rows[name] == own

    asyncio.run(check())


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=40), st.data())
def test_a_merkle_tree_grown_in_parts_is_the_tree_of_rfc_6962(digests: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(digests)))
    grown = MerkleRange()
    for digest in digests[:cut]:
        grown.add(digest.hex())
    grown = MerkleRange.restore(grown.export())
    for digest in digests[cut:]:
        grown.add(digest.hex())
    assert grown.root() == _tree(digests).hex()
    assert len(grown.export()["peaks"]) == len(digests).bit_count()


def _tree(digests: list[bytes]) -> bytes:
    """Compute the root as the standard defines it, from the top down."""
    if not digests:
        return hashlib.sha256(b"").digest()
    if len(digests) == 1:
        return hashlib.sha256(b"\x00" + digests[0]).digest()
    left = 1 << (len(digests) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + _tree(digests[:left]) + _tree(digests[left:])).digest()
