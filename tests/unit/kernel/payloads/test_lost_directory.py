"""A local store whose directory is gone is away: that is told as such, and nothing is made in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import PayloadMissing, Unavailable
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.model.stream import Scope
from noetl.testing.attacks.outages import FullDisk, LostDirectory

SCOPE = Scope("default", "default")


async def test_a_directory_that_is_gone_is_no_missing_object(tmp_path: Path) -> None:
    """INV-182."""
    root = tmp_path / "store"
    store = ObjectPayloadStore(LocalBucket(root))
    ref = await store.store(SCOPE, b"kept" * 100, "text/plain")
    LostDirectory(root).take_away()
    for asked in (store.fetch(SCOPE, ref), store.exists(SCOPE, ref), store.check(SCOPE, ref)):
        with pytest.raises(Unavailable, match="is gone"):
            await asked
    with pytest.raises(Unavailable, match="cannot spool"):
        await store.store(SCOPE, b"new" * 1_000_000, "text/plain")
    assert not root.exists()
    LostDirectory(root).bring_back()
    assert await store.fetch(SCOPE, ref) == b"kept" * 100
    await store.delete(SCOPE, ref.sha256)
    with pytest.raises(PayloadMissing):
        await store.fetch(SCOPE, ref)


async def test_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    """INV-182."""
    bucket = FullDisk(tmp_path / "store")
    bucket.is_full = True
    with pytest.raises(Unavailable, match="No space left on device"):
        await ObjectPayloadStore(bucket).store(SCOPE, b"new", "text/plain")
