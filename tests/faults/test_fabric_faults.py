"""Processes killed around every step of a tier: the bytes stay right, and a sweep leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from noetl.kernel.payloads.codec import ARROW_STREAM
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.shared_memory.shm import SharedMemory, memory_directory
from noetl.kernel.payloads.tiers import TieredPayloads, Tiers
from noetl.testing.samples.tables import SCOPE, made_table

pytestmark = pytest.mark.fault

ROWS = 150_000
_SCRIPT = """
import asyncio, pathlib, sys
from noetl.kernel.payloads.tiers import TieredPayloads
from noetl.kernel.payloads.tiers import Tiers
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.consumers import producing
from noetl.kernel.payloads.shared_memory.shm import SharedMemory
from noetl.testing.samples.tables import SCOPE, made_table

root, shared, lease, waits = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
figures, node = Figures(), NodeDirectory(shared, "n1")
ipc = SharedMemory(node, 64 << 20, 0.0, figures)
disk = DiskCache(root / "disk", 64 << 20, figures)
store = TieredPayloads(open_object_store(Connection(path=root / "payloads")), Tiers(figures, None, ipc, disk, "r"))
made = made_table(150_000)
with producing(1, 2, lease):
    asyncio.run(
        store.store(SCOPE, made.data, made.ref.media_type, rows=made.ref.rows, schema_digest=made.schema_digest)
    )
if waits == "expire":
    ipc._segments.expire()
print("stored", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="noetl-shared-", dir=memory_directory()))
    yield place
    shutil.rmtree(place)


def producer(root: Path, shared: Path, fault: str = "", lease: float = 60.0, then: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(root), str(shared), str(lease), then],
        env={**os.environ, "NOETL_FAULT": fault},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Survivor:
    """A process of the same node that comes afterwards."""

    def __init__(self, root: Path, shared: Path, stack: ExitStack) -> None:
        self.figures, self.node = Figures(), NodeDirectory(shared, "n1")
        stack.callback(self.node.close)
        self.ipc = SharedMemory(self.node, 64 << 20, 0.0, self.figures)
        stack.callback(self.ipc.close)
        self.disk = DiskCache(root / "disk", 64 << 20, self.figures)
        stack.callback(self.disk.close)
        durable = open_object_store(Connection(path=root / "payloads"))
        self.store = TieredPayloads(durable, Tiers(self.figures, None, self.ipc, self.disk, "r"))


@pytest.mark.parametrize(
    ("point", "served"),
    [
        ("externalize.before_store", None),
        ("payload.after_durable", "object"),
        ("disk.before_rename", "object"),
        ("shm.before_write", "disk"),
        ("shm.after_write", "disk"),
        ("shm.after_hint", "ipc"),
        ("shm.before_unlink", "disk"),
    ],
)
async def test_a_producer_killed_anywhere_leaves_right_bytes_and_nothing_after_a_sweep(
    tmp_path: Path, shared: Path, point: str, served: str | None
) -> None:
    """INV-108, INV-110."""
    ends = point == "shm.before_unlink"
    dying = producer(tmp_path, shared, f"{point}=kill", -100.0 if ends else 60.0, "expire" if ends else "")
    assert await asyncio.to_thread(dying.wait, 60) == -signal.SIGKILL
    dying.communicate()
    made = made_table(ROWS)
    with ExitStack() as stack:
        after = Survivor(tmp_path, shared, stack)
        store = after.store
        if served is None:
            assert [one async for one in store.objects(SCOPE)] == []
            await store.store(SCOPE, made.data, ARROW_STREAM, rows=ROWS, schema_digest=made.schema_digest)
        else:
            assert bytes(await store.view(SCOPE, made.ref)) == made.data
            assert after.figures.told().reads == {"process": {served: 1}}
        left = {name for name in after.node.regions() if after.node.owner not in name}
        assert len(left) == (point in ("shm.after_write", "shm.after_hint", "shm.before_unlink"))
        assert after.ipc.sweep() == len(left)
        assert all(after.node.owner in name for name in after.node.regions())
        assert await store.fetch(SCOPE, made.ref) == made.data
        after.ipc.close()
        assert after.node.regions() == []
        assert after.node.in_use == 0
        assert len(list((after.node.path / "owners").iterdir())) == 1
        assert list((after.node.path / "hints").iterdir()) == []
    strays = list((tmp_path / "disk" / "incoming").iterdir()) if (tmp_path / "disk" / "incoming").exists() else []
    assert len(strays) == (point == "disk.before_rename")


async def test_a_reader_keeps_what_it_holds_when_the_owner_dies(tmp_path: Path, shared: Path) -> None:
    """INV-106, INV-108."""
    owner = producer(tmp_path, shared)
    assert owner.stdout is not None
    assert await asyncio.to_thread(owner.stdout.readline) == "stored\n"
    made = made_table(ROWS)
    with ExitStack() as stack:
        reader = Survivor(tmp_path, shared, stack)
        view = reader.ipc.attach(reader.store._key(SCOPE, made.ref), made.ref)
        assert view is not None
        assert reader.ipc.sweep() == 0
        owner.kill()
        owner.communicate()
        assert reader.ipc.sweep() == 1
        assert reader.node.regions() == []
        assert bytes(view) == made.data
        assert await reader.store.fetch(SCOPE, made.ref) == made.data
        view.release()


async def test_a_paused_owner_keeps_its_regions_and_holds_nobody_up(tmp_path: Path, shared: Path) -> None:
    """INV-108."""
    owner = producer(tmp_path, shared, "shm.after_hint=pause")
    await asyncio.to_thread(os.waitid, os.P_PID, owner.pid, os.WSTOPPED | os.WNOWAIT)
    made = made_table(ROWS)
    with ExitStack() as stack:
        other = Survivor(tmp_path, shared, stack)
        assert other.ipc.sweep() == 0
        assert other.ipc.attach(other.store._key(SCOPE, made.ref), made.ref) is not None
        assert other.ipc.put("5" * 40, made.data, made.schema_digest, Origin()) is not None
    owner.send_signal(signal.SIGCONT)
    owner.communicate("")
    assert owner.returncode == 0
    with ExitStack() as stack:
        other = Survivor(tmp_path, shared, stack)
        # It ended without closing its tiers, as a process does that is told to stop at once.
        assert other.ipc.sweep() == 1


_FULL = """
import pathlib, resource, sys
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.shared_memory.shm import SharedMemory
from noetl.testing.samples.tables import made_table

figures, node = Figures(), NodeDirectory(pathlib.Path(sys.argv[1]), "n1")
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
ipc = SharedMemory(node, 64 << 20, 0.0, figures)
large, middle, small = made_table(400_000), made_table(100_000), made_table(1000)
assert ipc.put("1" * 40, large.data, large.schema_digest, Origin()) is None
assert ipc.put("2" * 40, middle.data, middle.schema_digest, Origin()) is None
assert ipc.put("3" * 40, small.data, small.schema_digest, Origin()) is not None
assert ipc.attach("3" * 40, small.ref) is not None
assert figures.told().passed == {"ipc:full": 2}, figures.told()
assert len(node.regions()) == 1
before = node.in_use
ipc.close()
assert node.in_use == 0 < before
node.close()
"""


def test_memory_that_is_full_is_passed_over(shared: Path) -> None:
    """INV-110."""
    subprocess.run([sys.executable, "-c", _FULL, str(shared), "limit"], check=True, timeout=60)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root may mount a small memory")
def test_a_full_memory_file_system_is_passed_over(tmp_path: Path) -> None:
    """INV-110."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        subprocess.run([sys.executable, "-c", _FULL, str(place), "mount"], check=True, timeout=60)
    finally:
        subprocess.run(["umount", str(place)], check=True)
