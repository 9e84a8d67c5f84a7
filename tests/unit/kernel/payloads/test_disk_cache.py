"""The disk cache of a node: bounded, shared, proven at every read, and never a reason to fail."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures

KIB = 1 << 10


def key_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cache(root: Path, limit: int = 1 << 20) -> tuple[DiskCache, Figures]:
    figures = Figures()
    return DiskCache(root, limit, figures), figures


def read(disk: DiskCache, data: bytes) -> bytes | None:
    found = disk.get(key_of(data), key_of(data), len(data))
    return None if found is None else bytes(found)


def test_it_survives_a_restart_and_is_seen_by_other_processes(tmp_path: Path) -> None:
    small, large = b"x" * 100, os.urandom(3 << 20)
    first, figures = cache(tmp_path / "cache", 8 << 20)
    assert first.put(key_of(small), small)
    assert first.put(key_of(large), large)
    assert figures.told().written == {"disk": len(small) + len(large)}
    first.close()
    again, _ = cache(tmp_path / "cache", 8 << 20)
    assert (read(again, small), read(again, large)) == (small, large)
    assert again.in_use() == len(small) + len(large)
    again.drop(key_of(small))
    assert read(again, small) is None
    assert again.in_use() == len(large)
    assert list((tmp_path / "cache" / "incoming").iterdir()) == []
    again.close()


def test_the_least_used_go_first_and_the_bound_holds(tmp_path: Path) -> None:
    """INV-109."""
    disk, _ = cache(tmp_path, 1000 * KIB)
    parts = [bytes([n]) * (100 * KIB) for n in range(20)]
    for number, part in enumerate(parts):
        assert disk.put(key_of(part), part)
        if number == 0:
            first = next((tmp_path / "objects").rglob(key_of(part)))
        else:
            # Long ago, all but the first, which was used just now.
            place = next((tmp_path / "objects").rglob(key_of(part)))
            os.utime(place, (1_000_000 + number, 1_000_000 + number))
        held = sum(one.stat().st_size for one in (tmp_path / "objects").rglob("*") if one.is_file())
        assert held <= 1000 * KIB
        assert disk.in_use() <= 1000 * KIB
    assert first.exists()
    assert read(disk, parts[0]) == parts[0]
    assert read(disk, parts[19]) == parts[19]
    assert read(disk, parts[1]) is None
    assert not disk.put("0" * 64, bytes(600 * KIB))
    disk.close()


def test_processes_write_at_once_and_keep_the_bound(tmp_path: Path) -> None:
    """INV-109."""
    script = (
        "import sys, pathlib, hashlib\n"
        "from noetl.kernel.payloads.disk import DiskCache\nfrom noetl.kernel.payloads.figures import Figures\n"
        "disk = DiskCache(pathlib.Path(sys.argv[1]), 200_000, Figures())\n"
        "for n in range(150):\n"
        "    data = f'{n // 3}-{sys.argv[2] if n % 3 else 0}'.encode() * 1000\n"
        "    key = hashlib.sha256(data).hexdigest()\n"
        "    assert disk.put(key, data)\n"
        "    found = disk.get(key, key, len(data))\n"
        "    assert found is None or bytes(found) == data\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(n)]) for n in range(3)]
    assert [one.wait(timeout=60) for one in running] == [0, 0, 0]
    held = sum(one.stat().st_size for one in (tmp_path / "objects").rglob("*") if one.is_file())
    # One process evicts while others go on, so as much as all of them have under way may be too much.
    assert held <= 200_000 + 3 * 10_000


@pytest.mark.parametrize("size", [3000, 3 << 20])
def test_a_flipped_bit_or_a_cut_file_is_not_believed_and_goes(tmp_path: Path, size: int) -> None:
    """INV-110."""
    disk, figures = cache(tmp_path, 16 << 20)
    data = os.urandom(size)
    for damage in ("flip", "cut"):
        assert disk.put(key_of(data), data)
        place = next((tmp_path / "objects").rglob(key_of(data)))
        if damage == "flip":
            with place.open("r+b") as file:
                file.seek(size // 2)
                byte = file.read(1)
                file.seek(size // 2)
                file.write(bytes([byte[0] ^ 1]))
        else:
            os.truncate(place, size - 1)
        assert read(disk, data) is None
        assert not place.exists()
    assert figures.told().passed == {"disk:digest": 2}
    disk.close()


def test_a_disk_that_takes_nothing_is_counted(tmp_path: Path) -> None:
    """INV-110."""
    (tmp_path / "file").write_bytes(b"in the way of a directory")
    disk, figures = cache(tmp_path / "file" / "cache")
    assert not disk.put(key_of(b"x"), b"x")
    assert read(disk, b"x") is None
    assert figures.told().passed == {"disk:error": 2}


_LIMITED = """
import errno, pathlib, resource, sys
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures

figures = Figures()
disk = DiskCache(pathlib.Path(sys.argv[1]), 1 << 30, figures)
assert disk.put("1" * 64, b"x" * 1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
assert not disk.put("2" * 64, b"x" * 200_000)
assert disk.put("3" * 64, b"x" * 1000)
assert figures.told().passed == {"disk:full": 1}, figures.told()
assert not list((pathlib.Path(sys.argv[1]) / "incoming").iterdir())
"""


def test_a_full_disk_is_counted_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """INV-110."""
    subprocess.run([sys.executable, "-c", _LIMITED, str(tmp_path)], check=True, timeout=60)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_still_serves_what_is_there(tmp_path: Path) -> None:
    disk, figures = cache(tmp_path)
    assert disk.put(key_of(b"x"), b"x")
    disk.close()
    for folder in (tmp_path, *[one for one in tmp_path.rglob("*") if one.is_dir()]):
        folder.chmod(0o500)
    try:
        again, figures = cache(tmp_path)
        assert read(again, b"x") == b"x"
        assert not again.put(key_of(b"y"), b"y")
        assert figures.told().passed == {"disk:read_only": 1}
        again.close()
    finally:
        for folder in (tmp_path, *[one for one in tmp_path.rglob("*") if one.is_dir()]):
            folder.chmod(0o700)
