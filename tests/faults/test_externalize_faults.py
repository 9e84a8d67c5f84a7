"""A process killed at any point of storing a payload leaves no object, or a whole one, and nothing in the way."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import pytest

from noetl.kernel.payloads.keys import FileTenantKeys
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.model.stream import Scope

SCOPE = Scope("acme", "care")
MEDIA = "application/octet-stream"
SIZES = {"small": 1000, "large": 9 << 20}
POINTS = ("externalize.before_store", "externalize.after_spool", "externalize.after_store")

_SCRIPT = """
import asyncio, pathlib, sys
from noetl.model.stream import Scope
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.keys import FileTenantKeys

root = pathlib.Path(sys.argv[1])
keys = FileTenantKeys(root / "keys") if sys.argv[3] == "encoded" else None
store = open_object_store(Connection(path=root / "payloads"), compress=keys is not None, keys=keys)
asyncio.run(store.store(Scope("acme", "care"), bytes(int(sys.argv[2])), "application/octet-stream"))
"""


def _store(root: Path, form: str) -> ObjectPayloadStore:
    keys = FileTenantKeys(root / "keys") if form == "encoded" else None
    return open_object_store(Connection(path=root / "payloads"), compress=keys is not None, keys=keys)


async def _kill_at(point: str, root: Path, size: int, form: str) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SCRIPT, str(root), str(size), form, env={**os.environ, "NOETL_FAULT": f"{point}=kill"}
    )
    return await asyncio.wait_for(process.wait(), timeout=60)


@pytest.mark.fault
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["plain", "encoded"])
async def test_a_killed_store_leaves_no_object_or_a_whole_one(tmp_path: Path, point: str, size: str, form: str) -> None:
    """INV-13."""
    assert await _kill_at(point, tmp_path, SIZES[size], form) == -signal.SIGKILL
    data = bytes(SIZES[size])
    store = _store(tmp_path, form)
    found = [found.sha256 async for found in store.objects(SCOPE)]
    assert found == ([hashlib.sha256(data).hexdigest()] if point == "externalize.after_store" else [])
    ref = await store.store(SCOPE, data, MEDIA)
    await store.check(SCOPE, ref)
    assert await store.fetch(SCOPE, ref) == data
    assert list((tmp_path / "payloads" / ".incoming").iterdir()) == []
