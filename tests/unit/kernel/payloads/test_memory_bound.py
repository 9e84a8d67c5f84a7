"""Payloads far larger than the memory they may take go in and out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import asyncio, pathlib, resource, sys
from noetl.model.stream import Scope
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.keys import MemoryTenantKeys

SCOPE, MIB = Scope("acme", "care"), 1 << 20
encoded = sys.argv[2] == "encoded"

async def source(count):
    for number in range(count):
        yield number.to_bytes(8, "big") * (MIB // 8)

async def pass_through(store, count):
    ref = await store.store(SCOPE, source(count), "application/octet-stream")
    seen = 0
    async for piece in store.stream(SCOPE, ref):
        seen += len(piece)
    await store.check(SCOPE, ref)
    assert await store.store(SCOPE, source(count), "application/octet-stream") == ref
    assert seen == count * MIB

async def main():
    keys = MemoryTenantKeys() if encoded else None
    store = open_object_store(Connection(path=pathlib.Path(sys.argv[1])), keys=keys)
    await pass_through(store, 12)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await pass_through(store, 72)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main())
"""


@pytest.mark.parametrize("form", ["plain", "encoded"])
def test_72_mib_go_in_and_out_with_a_few_mib_of_memory(tmp_path: Path, form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path), form], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 16
