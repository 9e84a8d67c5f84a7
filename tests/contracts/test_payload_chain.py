"""The payload store contract, kept by the chain of tiers, whichever of them are on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.keys import MemoryTenantKeys, TenantKeys
from noetl.kernel.payloads.lru import ByteLru
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.kernel.payloads.port import PayloadStore, object_key
from noetl.kernel.payloads.shared_memory.node import NodeDirectory
from noetl.kernel.payloads.shared_memory.shm import SharedMemory
from noetl.kernel.payloads.tiers import TieredPayloads, Tiers
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.testing.contracts.payloads import EncryptedPayloadStoreContract, PayloadStoreContract

MIB = 1 << 20


class OnTiers(PayloadStoreContract):
    """Reaches the durable bytes; a change of them is looked at from a node that never had the payload."""

    async def stored(self, store: PayloadStore, scope: Scope, ref: PayloadRef) -> bytes:
        assert isinstance(store, TieredPayloads)
        durable = store.durable
        assert isinstance(durable, ObjectPayloadStore)
        path = durable.bucket.path(object_key(scope, ref.sha256))
        return bytes(await (await obstore.get_async(durable.bucket.backend, path)).bytes_async())

    async def overwrite(self, store: PayloadStore, scope: Scope, ref: PayloadRef, data: bytes) -> None:
        assert isinstance(store, TieredPayloads)
        durable = store.durable
        assert isinstance(durable, ObjectPayloadStore)
        await obstore.put_async(durable.bucket.backend, durable.bucket.path(object_key(scope, ref.sha256)), data)
        store.forget(scope, ref.sha256)


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Tiers]:
    figures, node = Figures(), NodeDirectory(tmp_path, "contract")
    ipc = SharedMemory(node, 64 * MIB, 30, figures)
    disk = DiskCache(tmp_path / "cache", 256 * MIB, figures)
    yield Tiers(figures=figures, memory=ByteLru(64 * MIB), ipc=ipc, disk=disk, realm=str(tmp_path))
    ipc.close()
    disk.close()
    node.close()


class TestAllTiers(OnTiers):
    """Every tier."""

    @pytest.fixture
    def store(self, tmp_path: Path, tiers: Tiers) -> TieredPayloads:
        return TieredPayloads(open_object_store(Connection(path=tmp_path / "payloads"), compress=True), tiers)


class TestEncryptedUnderMemory(OnTiers, EncryptedPayloadStoreContract):
    """Encrypted payloads have tiers in memory only."""

    @pytest.fixture
    def keys(self) -> TenantKeys:
        return MemoryTenantKeys()

    @pytest.fixture
    def store(self, tmp_path: Path, keys: TenantKeys, tiers: Tiers) -> TieredPayloads:
        durable = open_object_store(Connection(path=tmp_path / "payloads"), compress=True, keys=keys)
        in_memory = Tiers(figures=tiers.figures, memory=tiers.memory, ipc=tiers.ipc, realm=tiers.realm)
        return TieredPayloads(durable, in_memory, keys=keys)
