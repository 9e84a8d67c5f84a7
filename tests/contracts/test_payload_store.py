"""The payload store contract, kept by memory, local files, object stores and a real S3 server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from noetl.kernel.payloads.keys import FileTenantKeys, MemoryTenantKeys, TenantKeys
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.kernel.payloads.port import PayloadStore, object_key
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.testing.contracts.payloads import EncryptedPayloadStoreContract, PayloadStoreContract
from noetl.testing.servers.s3 import S3Server, running_s3

_numbers = itertools.count()


class OnObjects(PayloadStoreContract):
    """Reaches the stored bytes through the bucket's backend."""

    async def stored(self, store: PayloadStore, scope: Scope, ref: PayloadRef) -> bytes:
        assert isinstance(store, ObjectPayloadStore)
        path = store.bucket.path(object_key(scope, ref.sha256))
        return bytes(await (await obstore.get_async(store.bucket.backend, path)).bytes_async())

    async def overwrite(self, store: PayloadStore, scope: Scope, ref: PayloadRef, data: bytes) -> None:
        assert isinstance(store, ObjectPayloadStore)
        await obstore.put_async(store.bucket.backend, store.bucket.path(object_key(scope, ref.sha256)), data)


class TestMemory(PayloadStoreContract):
    """The reference."""

    @pytest.fixture
    def store(self) -> MemoryPayloadStore:
        return MemoryPayloadStore()

    async def stored(self, store: PayloadStore, scope: Scope, ref: PayloadRef) -> bytes:
        assert isinstance(store, MemoryPayloadStore)
        return store.kept[object_key(scope, ref.sha256)][0]

    async def overwrite(self, store: PayloadStore, scope: Scope, ref: PayloadRef, data: bytes) -> None:
        assert isinstance(store, MemoryPayloadStore)
        key = object_key(scope, ref.sha256)
        store.kept[key] = (data, store.kept[key][1])


class TestMemoryObjects(OnObjects):
    """Objects in obstore's memory, compressed."""

    @pytest.fixture
    def store(self) -> ObjectPayloadStore:
        return open_object_store(Connection(backend="memory", prefix="all/payloads"), compress=True)


class TestLocalFiles(OnObjects):
    """Plain files."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectPayloadStore:
        return open_object_store(Connection(backend="local", path=tmp_path / "payloads"))


class TestEncryptedLocalFiles(OnObjects, EncryptedPayloadStoreContract):
    """Files under keys that are files."""

    @pytest.fixture
    def keys(self, tmp_path: Path) -> TenantKeys:
        return FileTenantKeys(tmp_path / "keys")

    @pytest.fixture
    def store(self, tmp_path: Path, keys: TenantKeys) -> ObjectPayloadStore:
        return open_object_store(Connection(backend="local", path=tmp_path / "payloads"), keys=keys)


class TestCompressedEncryptedLocalFiles(OnObjects, EncryptedPayloadStoreContract):
    """Every encoding at once."""

    @pytest.fixture
    def keys(self) -> TenantKeys:
        return MemoryTenantKeys()

    @pytest.fixture
    def store(self, tmp_path: Path, keys: TenantKeys) -> ObjectPayloadStore:
        connection = Connection(backend="pvc", path=tmp_path / "payloads", prefix="tier3")
        return open_object_store(connection, compress=True, keys=keys)


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.mark.service
class TestS3(OnObjects):
    """A real S3 server over HTTP."""

    @pytest.fixture
    def store(self, s3_server: S3Server) -> ObjectPayloadStore:
        connection = Connection(
            backend="minio",
            endpoint=s3_server.endpoint,
            bucket=s3_server.bucket,
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
            allow_http=True,
            prefix=f"run-{next(_numbers)}",
        )
        return open_object_store(connection)
