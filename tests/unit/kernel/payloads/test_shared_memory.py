"""Tables in a node's shared memory: found without a copy, bounded together, used again only when nobody reads them."""

from __future__ import annotations

import gc
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psutil
import pyarrow as pa
import pytest

from noetl.kernel.payloads.codec import decode_table
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.shared_memory import segments, shm
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.shared_memory.port import Filed
from noetl.kernel.payloads.shared_memory.region import capacity_for, charge_for, pack_header, read_header
from noetl.kernel.payloads.shared_memory.segments import Segments
from noetl.kernel.payloads.shared_memory.shm import SharedMemory
from noetl.model.payload_ref import HintedRef, IpcHint
from noetl.testing.samples.tables import Made, made_table

MIB = 1 << 20
KEY = "0" * 40
FRAME = Origin(71, 5, 60.0)
OVER = Origin(71, 5, -1000.0)
"""A lease that is long over, so that the region's time is over at once."""


class Owner:
    """What one process has of a node; several of them in one process are as good, since each opens its own files."""

    def __init__(self, base: Path, node: str, budget: int) -> None:
        self.figures = Figures()
        self.node = NodeDirectory(base, node)
        self.memory = SharedMemory(self.node, budget, 0.0, self.figures)
        self.segments: Segments = self.memory._segments

    def put(self, made: Made, key: str = KEY, origin: Origin = FRAME) -> IpcHint | None:
        return self.memory.put(key, made.data, made.schema_digest, origin)

    def read(self, made: Made, key: str = KEY) -> pa.Table | None:
        found = self.memory.attach(key, made.ref)
        return None if found is None else decode_table(found)

    @property
    def passed(self) -> dict[str, int]:
        return self.figures.told().passed

    def close(self) -> None:
        self.memory.close()
        self.node.close()


Join = Callable[..., Owner]


@pytest.fixture
def join(shared: Path) -> Iterator[Join]:
    with ExitStack() as stack:

        def joined(node: str = "n1", budget: int = 64 * MIB) -> Owner:
            owner = Owner(shared, node, budget)
            stack.callback(lambda: owner.close())
            return owner

        yield joined


def addresses(table: pa.Table) -> list[tuple[int, int]]:
    buffers = [buffer for column in table.columns for chunk in column.chunks for buffer in chunk.buffers() if buffer]
    return [(buffer.address, buffer.address + buffer.size) for buffer in buffers]


def test_the_header_is_what_other_languages_expect() -> None:
    """INV-104."""
    header = pack_header(258)
    assert header == b"NOETLIPC" + b"\x01\0\0\0" + b"\x02\x01" + bytes(6) + bytes(44)
    assert read_header(header) == 258
    assert read_header(b"NOETLIPX" + header[8:]) is None
    assert read_header(header[:8] + struct.pack("<I", 2) + header[12:]) is None
    assert read_header(header[:19]) is None


def test_a_reader_uses_the_very_memory_the_writer_filled(join: Join, shared: Path) -> None:
    """INV-104."""
    writer, reader = join(), join()
    made = made_table(200_000)
    hint = writer.put(made)
    assert hint is not None
    assert hint.shm_name.startswith("/noetl-71-5-")
    assert timedelta(seconds=50) < hint.valid_until - datetime.now(UTC) <= timedelta(seconds=60)
    view = reader.memory.attach(KEY, made.ref)
    assert view is not None
    start = pa.py_buffer(view).address
    assert start % 64 == 0
    table = decode_table(view)
    held = addresses(table)
    assert held
    assert all(start <= first <= last <= start + len(view) for first, last in held)
    del view
    gc.collect()
    mapped = [one for one in psutil.Process().memory_maps(grouped=False) if one.path.endswith(hint.shm_name)]
    low, high = mapped[-1].addr.split("-")
    assert any(int(one.addr.split("-")[0], 16) <= start < int(one.addr.split("-")[1], 16) for one in mapped), (
        low,
        high,
    )
    assert table.column("n").to_pylist()[-1] == 199_999
    assert stat.S_IMODE((shared / hint.shm_name[1:]).stat().st_mode) == 0o600
    assert (reader.figures.told().written, writer.figures.told().written) == ({}, {"ipc": len(made.data)})


def test_small_tables_and_those_beyond_the_most_attached_are_copied(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, small, large = join(), made_table(10), made_table(10_000)
    owner.put(small, "a" * 40)
    owner.put(large, "b" * 40)
    gc.collect()
    before = psutil.Process().num_fds()
    held = [owner.memory.attach("a" * 40, small.ref) for _ in range(5)]
    assert psutil.Process().num_fds() == before
    monkeypatch.setattr(shm, "MOST_ATTACHED", 3)
    held += [owner.memory.attach("b" * 40, large.ref) for _ in range(6)]
    assert psutil.Process().num_fds() == before + 3
    assert [bytes(one) for one in held if one is not None] == [small.data] * 5 + [large.data] * 6
    held.clear()
    gc.collect()
    assert psutil.Process().num_fds() == before


def test_all_processes_of_a_node_share_one_budget(join: Join) -> None:
    """INV-105."""
    made = made_table(100_000)
    charge = charge_for(capacity_for(len(made.data)))
    owners = [join(budget=3 * charge) for _ in range(2)]
    assert [owners[n % 2].put(made, f"{n}" * 40) is not None for n in range(4)] == [True, True, True, False]
    assert owners[0].node.in_use == owners[1].memory.in_use() == 3 * charge
    assert (owners[0].figures.told().exhausted, owners[1].figures.told().exhausted) == (0, 1)
    owners[0].memory.close()
    assert owners[1].node.in_use == charge
    assert owners[1].put(made, "9" * 40) is not None
    assert join(budget=charge - 1).put(made, "8" * 40) is None


def test_a_large_region_is_used_again_when_no_reader_holds_it(join: Join) -> None:
    """INV-106."""
    writer, reader = join(), join()
    first, second, third = (made_table(200_000, n) for n in range(3))
    names = []
    hint = writer.put(first, "1" * 40, OVER)
    assert hint is not None
    names.append(Path(writer.node.place(hint.shm_name)).stat().st_ino)
    writer.segments.expire()
    assert reader.read(first, "1" * 40) is None
    hint = writer.put(second, "2" * 40)
    assert hint is not None
    names.append(Path(writer.node.place(hint.shm_name)).stat().st_ino)
    assert names[0] == names[1]
    table = reader.read(second, "2" * 40)
    assert table is not None
    # Its time ends while a reader holds it: the memory stays as it is, and the next table goes elsewhere.
    _end_now(writer)
    writer.segments.expire()
    assert not Path(writer.node.place(hint.shm_name)).exists()
    in_use = writer.node.in_use
    hint = writer.put(third, "3" * 40)
    assert hint is not None
    assert writer.node.in_use == 2 * in_use
    assert table.column("n").to_pylist()[:2] == [1, 2]
    del table
    gc.collect()
    writer.segments.expire()
    assert writer.node.in_use == in_use
    found = reader.read(third, "3" * 40)
    assert found is not None
    assert found.column("n")[0].as_py() == 2


def test_a_region_that_waits_to_be_used_again_makes_room_for_others(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "IDLE_SECONDS", 0.0)
    large, small = made_table(200_000), made_table(100)
    owner = join(budget=charge_for(capacity_for(len(large.data))))
    owner.put(large, "1" * 40, OVER)
    monkeypatch.undo()
    owner.segments.expire()
    assert owner.node.in_use > 0
    assert owner.put(small, "2" * 40) is not None
    assert owner.node.regions() == [owner.memory.hint("2" * 40).shm_name]  # type: ignore[union-attr]


def test_a_reader_that_comes_too_late_sees_another_name_and_reads_nothing(join: Join, shared: Path) -> None:
    """INV-106: the hint is copied back after the region has become another table's."""
    writer, reader = join(), join()
    first, second = made_table(200_000), made_table(200_000, 7)
    old = writer.put(first, "1" * 40, OVER)
    assert old is not None
    writer.segments.expire()
    writer.put(second, "2" * 40)
    forged = msgspec.structs.replace(old, valid_until=datetime.now(UTC) + timedelta(hours=1))
    writer.node.hints.file("1" * 40, Filed(forged, first.ref.bytes))
    assert reader.read(first, "1" * 40) is None
    assert reader.passed == {"ipc:gone": 1}


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("node", {"node_id": "n2"}),
        ("stale", {"valid_until": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("schema", {"schema_digest": "0" * 64}),
        ("name", {"shm_name": "/../../etc/passwd"}),
        ("name", {"shm_name": "/noetl-1-1-00000000.00000000.1"}),
        ("gone", {"shm_name": None}),
    ],
)
def test_a_forged_hint_is_counted_and_not_followed(join: Join, reason: str, change: dict[str, object]) -> None:
    """INV-107."""
    owner, made = join(), made_table(10_000)
    hint = owner.put(made)
    assert hint is not None
    if change.get("shm_name", "") is None:
        change = {"shm_name": f"/noetl-1-1-{owner.node.tag}.00000000.1"}
    owner.node.hints.file(KEY, Filed(msgspec.structs.replace(hint, **change), made.ref.bytes))
    assert owner.read(made) is None
    assert owner.passed == {f"ipc:{reason}": 1}


def test_what_is_no_hint_at_all_or_does_not_fit_is_not_followed(join: Join, shared: Path) -> None:
    """INV-107."""
    owner, made, other = join(), made_table(10_000), made_table(9_999)
    hint = owner.put(made)
    assert hint is not None
    assert owner.memory.attach(KEY, other.ref) is None
    hinted = HintedRef(**msgspec.structs.asdict(made.ref), ipc=msgspec.structs.replace(hint, shm_name="/noetl-1-1-x"))
    assert owner.memory.attach(KEY, hinted) is None
    good = HintedRef(**msgspec.structs.asdict(made.ref), ipc=hint)
    assert owner.memory.attach(KEY, good) is not None
    place = Path(owner.node.place(hint.shm_name))
    for at in (0, 9, 13):
        with place.open("r+b") as file:
            file.seek(at)
            before = file.read(1)
            file.seek(at)
            file.write(bytes([before[0] ^ 4]))
        assert owner.read(made) is None, at
        with place.open("r+b") as file:
            file.seek(at)
            file.write(before)
    os.truncate(place, 100)
    assert owner.read(made) is None
    place.unlink()
    place.symlink_to(shared / "lock")
    assert owner.read(made) is None
    (owner.node.path / "hints" / KEY).unlink()
    (owner.node.path / "hints" / KEY).symlink_to("no hint")
    assert owner.read(made) is None
    assert owner.passed == {"ipc:length": 2, "ipc:forged": 1, "ipc:header": 3, "ipc:error": 1, "ipc:hint": 1}


def test_two_nodes_on_one_machine_never_see_each_others_regions(join: Join) -> None:
    """INV-107."""
    ours, theirs, made = join("n1"), join("n2"), made_table(10_000)
    hint = ours.put(made)
    assert hint is not None
    assert theirs.read(made) is None
    theirs.node.hints.file(KEY, Filed(hint, made.ref.bytes))
    assert theirs.read(made) is None
    theirs.node.hints.file(KEY, Filed(msgspec.structs.replace(hint, node_id="n2"), made.ref.bytes))
    assert theirs.read(made) is None
    assert theirs.passed == {"ipc:node": 1, "ipc:name": 1}
    assert theirs.memory.sweep() == 0
    assert ours.read(made) is not None
    assert theirs.memory.in_use() == 0


def test_a_sweep_removes_what_dead_owners_left_and_nothing_of_the_living(join: Join, shared: Path) -> None:
    """INV-108."""
    alive, dead, made = join(), join(), made_table(200_000)
    alive.put(made, "a" * 40)
    dead.put(made, "d" * 40)
    dead.figures.read("worker", "ipc", 7)
    dead.node.tell(dead.figures, now=True)
    reading = alive.read(made, "d" * 40)
    assert reading is not None
    _die(dead)
    assert join().memory.sweep() == 1
    assert [alive.read(made, key * 40) is not None for key in "ad"] == [True, False]
    assert alive.node.in_use == charge_for(capacity_for(len(made.data)))
    assert len(alive.node.regions()) == 1
    assert reading.column("n").to_pylist()[-1] == 199_999
    assert join().memory.sweep() == 0


def test_a_directory_of_somebody_else_is_not_used(shared: Path) -> None:
    """INV-107."""
    first = NodeDirectory(shared, "n1")
    first.close()
    place = first.path
    for child in sorted(place.rglob("*"), reverse=True):
        child.unlink() if not child.is_dir() else child.rmdir()
    place.rmdir()
    place.symlink_to(shared)
    with pytest.raises(PermissionError):
        NodeDirectory(shared, "n1")


def test_a_writer_that_cannot_get_the_lock_goes_on_without(join: Join) -> None:
    """INV-105."""
    holder, writer, made = join(), join(), made_table(100)
    with holder.node.locked():
        assert writer.put(made) is None
    assert writer.passed == {"ipc:busy": 1}
    assert writer.put(made) is not None


def _end_now(owner: Owner) -> None:
    owner.segments._live = [(0.0, number, one) for _, number, one in owner.segments._live]


def _die(owner: Owner) -> None:
    """Let go of its locks as a killed process does; what it owns stays behind."""
    owner.segments.abandon()
    with owner.segments._wake:
        owner.segments._closed = True
        owner.segments._wake.notify()
    owner.node._pid = 0
    owner.node.close()
    owner.close = lambda: None  # type: ignore[method-assign]
