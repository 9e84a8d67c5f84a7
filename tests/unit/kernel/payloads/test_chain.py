"""The chain of tiers: the nearest serves, those above are filled, and whatever is wrong with one, the bytes are right."""

from __future__ import annotations

import ctypes
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from noetl.errors import Corrupt, Erased
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, decode_table
from noetl.kernel.payloads.consumers import for_consumer, producing
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.keys import MemoryTenantKeys
from noetl.kernel.payloads.lru import ByteLru
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.port import PayloadStore, object_key
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.shared_memory.shm import SharedMemory
from noetl.kernel.payloads.tiers import TieredPayloads, Tiers, durable_of
from noetl.model.payload_ref import HintedRef, PayloadRef
from noetl.testing.samples.tables import SCOPE, Made, made_table

MIB = 1 << 20


class Node:
    """A node with processes that share a durable store."""

    def __init__(self, root: Path, stack: ExitStack, name: str, durable: PayloadStore) -> None:
        self.root, self.name, self.durable = root, name, durable
        self._stack = stack
        self.keys: MemoryTenantKeys | None = None

    def process(
        self,
        *,
        budget: int = 64 * MIB,
        verify: bool = False,
        disk: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> TieredPayloads:
        """Return what one process has of the node."""
        figures, node = Figures(), NodeDirectory(self.root, self.name)
        self._stack.callback(node.close)
        ipc = SharedMemory(node, budget, 30.0, figures, clock) if budget else None
        if ipc is not None:
            self._stack.callback(ipc.close)
        cache = DiskCache(self.root / f"disk-{self.name}", 64 * MIB, figures) if disk else None
        if cache is not None:
            self._stack.callback(cache.close)
        tiers = Tiers(figures, ByteLru(16 * MIB), ipc, cache, "realm", verify)
        return TieredPayloads(self.durable, tiers, keys=self.keys)

    def region(self) -> Path:
        """Return the only region of the node."""
        (found,) = [one for one in self.root.iterdir() if one.name.startswith("noetl-")]
        return found

    def file(self) -> Path:
        """Return the only file of the disk cache."""
        (found,) = [one for one in (self.root / f"disk-{self.name}" / "objects").rglob("*") if one.is_file()]
        return found


@pytest.fixture
def node(shared: Path) -> Iterator[Node]:
    with ExitStack() as stack:
        yield Node(shared, stack, "n1", MemoryPayloadStore())


async def stored(store: TieredPayloads, made: Made) -> PayloadRef:
    return await store.store(SCOPE, made.data, ARROW_STREAM, rows=made.ref.rows, schema_digest=made.schema_digest)


def reads(store: TieredPayloads) -> dict[str, int]:
    return store.tiers.figures.told().reads.get(store.consumer, {})


def passed(store: TieredPayloads) -> dict[str, int]:
    return store.tiers.figures.told().passed


def flip(place: Path, at: int) -> None:
    with place.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x20]))


async def test_a_table_is_read_by_its_neighbours_from_shared_memory_and_by_others_from_further_away(node: Node) -> None:
    writer, reader, made = node.process(), node.process(), made_table(20_000)
    with producing(42, 7, 60.0):
        ref = await stored(writer, made)
    assert ref == made.ref
    assert node.region().name.startswith("noetl-42-7-")
    assert decode_table(await reader.view(SCOPE, ref)).num_rows == 20_000
    assert await reader.fetch(SCOPE, ref) == made.data
    assert b"".join([piece async for piece in reader.stream(SCOPE, ref)]) == made.data
    assert reads(reader) == {"ipc": 3}
    assert writer.tiers.figures.told().written == {"object": ref.bytes, "ipc": ref.bytes, "disk": ref.bytes}

    restarted = node.process(budget=0)
    assert await restarted.fetch(SCOPE, ref) == made.data
    assert await restarted.fetch(SCOPE, ref) == made.data
    assert reads(restarted) == {"disk": 1, "memory": 1}
    served = [store.tiers.figures.told().read_bytes for store in (reader, restarted)]
    assert served == [{"ipc": 3 * ref.bytes}, {"disk": ref.bytes, "memory": ref.bytes}]
    elsewhere = Node(node.root, node._stack, "n2", node.durable).process()
    assert bytes(await elsewhere.view(SCOPE, ref)) == made.data
    assert await elsewhere.fetch(SCOPE, ref) == made.data
    assert reads(elsewhere) == {"object": 1, "ipc": 1}
    assert elsewhere.tiers.figures.told().written == {"ipc": ref.bytes, "disk": ref.bytes}


async def test_what_is_no_table_goes_to_the_memory_of_the_process(node: Node) -> None:
    store, other = node.process(), node.process(disk=False)
    ref = await store.store(SCOPE, b'{"n":1}', JSON)
    assert await store.fetch(SCOPE, ref) == b'{"n":1}'
    assert await store.fetch(SCOPE, ref) == b'{"n":1}'
    assert await other.fetch(SCOPE, ref) == b'{"n":1}'
    assert (reads(store), reads(other)) == ({"disk": 1, "memory": 1}, {"object": 1})


async def test_writes_reach_the_durable_store_first_or_no_tier_at_all(node: Node) -> None:
    class Refusing(MemoryPayloadStore):
        async def store(self, *_: object, **__: object) -> PayloadRef:
            raise Corrupt("no")

    node.durable = Refusing()
    with pytest.raises(Corrupt):
        await stored(node.process(), made_table(1000))
    assert not [one for one in node.root.iterdir() if one.name.startswith("noetl-")]


async def test_a_flipped_bit_in_any_tier_never_reaches_a_reader(node: Node, tmp_path: Path) -> None:
    """INV-110."""
    node.durable = open_object_store(Connection(path=tmp_path / "payloads"))
    writer, made = node.process(verify=True), made_table(200_000)
    ref = await stored(writer, made)
    flip(node.region(), 1_000_000)
    careful = node.process(verify=True)
    assert bytes(await careful.view(SCOPE, ref)) == made.data
    assert (passed(careful), reads(careful)) == ({"ipc:digest": 1}, {"disk": 1})

    unsuspecting = node.process()
    hint = careful.tiers.ipc.hint(careful._key(SCOPE, ref))  # type: ignore[union-attr]
    assert hint is not None
    flip(node.root / hint.shm_name[1:], 1_000_000)
    assert await unsuspecting.fetch(SCOPE, ref) == made.data
    assert (passed(unsuspecting), reads(unsuspecting)) == ({"ipc:digest": 1}, {"disk": 1})

    flip(node.file(), 500_000)
    alone = node.process(budget=0, verify=True)
    assert await alone.fetch(SCOPE, ref) == made.data
    assert (passed(alone), reads(alone)) == ({"disk:digest": 1}, {"object": 1})
    kept = alone.tiers.memory.get(alone._key(SCOPE, ref))  # type: ignore[union-attr]
    assert kept is not None
    ctypes.memset(id(kept) + bytes.__basicsize__ - 1 + 100, 0xFF, 1)
    assert await alone.fetch(SCOPE, ref) == made.data
    assert passed(alone) == {"disk:digest": 1, "memory:digest": 1}


async def test_a_frame_that_asks_for_it_has_proven_what_it_reads_from_memory(node: Node) -> None:
    """INV-110."""
    writer, made = node.process(), made_table(200_000)
    ref = await stored(writer, made)
    flip(node.region(), 1_000_000)
    reader = node.process()
    assert bytes(await reader.view(SCOPE, ref)) != made.data, "nobody asked for a proof"
    with producing(1, 2, proves=True):
        assert bytes(await reader.view(SCOPE, ref)) == made.data
    assert passed(reader) == {"ipc:digest": 1}


async def test_a_flipped_bit_in_the_durable_tier_alone_is_an_error(tmp_path: Path, node: Node) -> None:
    """INV-110."""
    durable = open_object_store(Connection(path=tmp_path / "payloads"))
    node.durable = durable
    made = made_table(1000)
    ref = await stored(node.process(), made)
    flip(tmp_path / "payloads" / object_key(SCOPE, ref.sha256), 200)
    assert await node.process().fetch(SCOPE, ref) == made.data
    with pytest.raises(Corrupt):
        await node.process().check(SCOPE, ref)
    with pytest.raises(Corrupt):
        await Node(node.root, node._stack, "n2", durable).process().fetch(SCOPE, ref)


async def test_tiers_that_vanish_while_they_are_used_change_nothing(node: Node) -> None:
    """INV-110."""
    store, made = node.process(), made_table(20_000)
    ref = await stored(store, made)
    view = await store.view(SCOPE, ref)
    for place in [node.region(), node.file()]:
        place.unlink()
    assert bytes(view) == made.data
    assert await store.fetch(SCOPE, ref) == made.data
    assert reads(store) == {"ipc": 1, "object": 1}
    for folder in ("hints", "owners", "figures"):
        for one in (node.root / f"noetl.{store.tiers.ipc._node.tag}" / folder).iterdir():  # type: ignore[union-attr]
            one.unlink()
    assert await store.fetch(SCOPE, ref) == made.data
    assert await stored(store, made) == ref


async def test_two_organizations_and_two_stores_never_share_a_tier(node: Node, tmp_path: Path) -> None:
    """INV-107."""
    ours, made = node.process(), made_table(1000)
    await stored(ours, made)
    other = Node(node.root, node._stack, "n1", MemoryPayloadStore()).process()
    strange = TieredPayloads(other.durable, replace(other.tiers, realm="another"))
    await strange.durable.store(SCOPE, made.data, ARROW_STREAM)
    assert await strange.fetch(SCOPE, made.ref) == made.data
    assert reads(strange) == {"object": 1}


async def test_an_erased_tenant_is_erased_in_memory_too(node: Node, tmp_path: Path) -> None:
    node.keys = MemoryTenantKeys()
    node.durable = open_object_store(Connection(path=tmp_path / "payloads"), keys=node.keys)
    store, made = node.process(disk=False), made_table(1000)
    ref = await stored(store, made)
    assert len(await store.view(SCOPE, ref)) == ref.bytes
    node.keys.destroy(SCOPE.tenant_id)
    for read in (store.view, store.fetch):
        with pytest.raises(Erased):
            await read(SCOPE, ref)


async def test_a_hint_passes_between_neighbours_and_never_into_an_event(node: Node) -> None:
    store, made = node.process(), made_table(1000)
    hinted = await store.hinted(SCOPE, await stored(store, made))
    assert isinstance(hinted, HintedRef)
    assert hinted.ipc.node_id == "n1"
    assert len(await node.process().view(SCOPE, hinted)) == hinted.bytes
    assert "ipc" in json.loads(msgspec.json.encode(hinted))
    assert msgspec.json.decode(msgspec.json.encode(hinted), type=PayloadRef) == made.ref
    assert hinted.event_problems("acme", "care") == ["payload_ref carries a hint of one node, and events carry none"]
    assert made.ref.event_problems("acme", "care") == []


async def test_consumers_are_counted_apart(node: Node) -> None:
    store, made = node.process(), made_table(1000)
    ref = await stored(store, made)
    for name in ("reducer", "reducer", "projector"):
        await for_consumer(store, name).view(SCOPE, ref)
    told = store.tiers.figures.told()
    assert told.reads == {"reducer": {"ipc": 2}, "projector": {"ipc": 1}}
    assert told.ratio("reducer", ["ipc"]) == 1.0
    assert told.ratio("nobody", ["ipc"]) == 0.0
    assert durable_of(store) is node.durable
    assert durable_of(node.durable) is node.durable


async def test_ten_thousand_frames_leave_no_region_descriptor_or_memory_behind(node: Node) -> None:
    """INV-108."""
    now = 0.0
    producer, consumer = node.process(disk=False, clock=lambda: now), node.process(disk=False)
    assert isinstance(producer.tiers.ipc, SharedMemory)
    this, rows = psutil.Process(), made_table(2500)
    before: tuple[int, int] | None = None
    for number in range(10_000):
        data = rows.data[:-16] + number.to_bytes(8, "little") + rows.data[-8:]
        with producing(1, number, 60.0):
            ref = await producer.store(SCOPE, data, ARROW_STREAM, rows=2500, schema_digest=rows.schema_digest)
        assert decode_table(await consumer.view(SCOPE, ref)).num_rows == 2500
        await node.durable.delete(SCOPE, ref.sha256)
        now += 1.0
        if number % 100 == 0:
            producer.tiers.ipc._segments.expire()
        if number == 1000:
            gc.collect()
            before = (this.num_fds(), this.memory_info().rss)
    assert reads(consumer) == {"ipc": 10_000}
    now += 100.0
    producer.tiers.ipc._segments.expire()
    gc.collect()
    assert before is not None
    assert this.num_fds() <= before[0]
    assert this.memory_info().rss < before[1] + 16 * MIB
    assert producer.tiers.ipc._node.regions() == []
    assert list((node.root / f"noetl.{producer.tiers.ipc._node.tag}" / "hints").iterdir()) == []
    assert producer.tiers.ipc.in_use() == 0
