"""Manifests are fetched once."""

from __future__ import annotations

import msgspec
from tests.unit.pipelines.works import GENERATION

from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.dataset import MANIFEST_TYPE, Manifest
from noetl.model.stream import Scope
from noetl.pipelines.datasets.manifests import Manifests

SCOPE = Scope("default", "default")


async def test_a_manifest_is_read_once_and_kept() -> None:
    payloads = MemoryPayloadStore()
    given = [
        Manifest(dataset_version=GENERATION, partition_key=key, version=1, schema=()) for key in ("day=1", "day=2")
    ]
    refs = [await payloads.store(SCOPE, msgspec.json.encode(one), MANIFEST_TYPE) for one in given]
    manifests = Manifests(SCOPE, payloads)
    assert await manifests.get([*refs, refs[0]]) == {ref.sha256: one for ref, one in zip(refs, given, strict=True)}
    emptied = Manifests(SCOPE, MemoryPayloadStore())
    emptied._kept = manifests._kept
    assert (await emptied.get(refs[1:]))[refs[1].sha256] == given[1]
