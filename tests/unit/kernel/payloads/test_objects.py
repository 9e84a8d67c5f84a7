"""What the object store does beyond the contract: encodings over time, refreshing, durability, errors of a backend."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.platform.waits import platform_problem
from noetl.errors import ConfigError, Unavailable
from noetl.kernel.payloads.keys import MemoryTenantKeys
from noetl.kernel.payloads.objects.bucket import Bucket
from noetl.kernel.payloads.objects.connect import Backend, Connection, open_bucket, open_object_store
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.kernel.payloads.port import object_key
from noetl.model.stream import Scope

SCOPE = Scope("acme", "care")
MEDIA = "text/plain"
TEXT = b"the same line over and over\n" * 500


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return LocalBucket(tmp_path / "payloads")


def _file(tmp_path: Path, sha256: str) -> Path:
    return tmp_path / "payloads" / object_key(SCOPE, sha256)


async def test_a_payload_stored_as_it_is_is_the_file_itself(tmp_path: Path, bucket: Bucket) -> None:
    ref = await ObjectPayloadStore(bucket).store(SCOPE, TEXT, MEDIA)
    assert ref.encoding == "identity"
    assert _file(tmp_path, ref.sha256).read_bytes() == TEXT


async def test_any_zstd_reader_can_read_a_compressed_object(tmp_path: Path, bucket: Bucket) -> None:
    ref = await ObjectPayloadStore(bucket, compress=True).store(SCOPE, TEXT, MEDIA)
    raw = _file(tmp_path, ref.sha256).read_bytes()
    assert ref.encoding == "zstd"
    assert len(raw) < len(TEXT) / 10
    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    assert reader.read() == TEXT


async def test_an_object_keeps_its_encoding_when_the_setting_changes(bucket: Bucket) -> None:
    keys = MemoryTenantKeys()
    plain = ObjectPayloadStore(bucket)
    everything = ObjectPayloadStore(bucket, compress=True, keys=keys)
    ref = await plain.store(SCOPE, TEXT, MEDIA)
    assert await everything.store(SCOPE, TEXT, MEDIA) == ref
    other = await everything.store(SCOPE, TEXT * 2, MEDIA)
    assert other.encoding == "zstd+aes256gcm"
    assert await ObjectPayloadStore(bucket, keys=keys).store(SCOPE, TEXT * 2, MEDIA) == other
    with pytest.raises(ConfigError, match="no tenant keys"):
        await plain.fetch(SCOPE, other)


async def test_an_object_healed_in_another_encoding_still_serves_old_references(tmp_path: Path, bucket: Bucket) -> None:
    plain = ObjectPayloadStore(bucket)
    ref = await plain.store(SCOPE, TEXT, MEDIA)
    _file(tmp_path, ref.sha256).write_bytes(b"damaged")
    healed = await ObjectPayloadStore(bucket, compress=True).store(SCOPE, TEXT, MEDIA)
    assert healed.encoding == "zstd"
    assert await plain.fetch(SCOPE, ref) == TEXT
    assert await plain.fetch(SCOPE, healed) == TEXT


@pytest.mark.parametrize("then", [False, True], ids=["same encoding", "other encoding"])
async def test_an_old_object_is_written_anew_when_stored_again(tmp_path: Path, bucket: Bucket, then: bool) -> None:
    ref = await ObjectPayloadStore(bucket).store(SCOPE, TEXT, MEDIA)
    path = _file(tmp_path, ref.sha256)
    store = ObjectPayloadStore(bucket, compress=then, grace=timedelta(hours=2))
    for minutes, refreshed in ((50, False), (70, True)):
        old = time.time() - minutes * 60
        os.utime(path, (old, old))
        assert await store.store(SCOPE, TEXT, MEDIA) == ref
        assert (path.stat().st_mtime > old + 60) is refreshed
        assert path.read_bytes() == TEXT


async def test_strays_of_killed_processes_are_swept_and_never_listed(tmp_path: Path, bucket: Bucket) -> None:
    incoming = tmp_path / "payloads" / ".incoming"
    (incoming / "old").write_bytes(b"half")
    os.utime(incoming / "old", (time.time() - 7200,) * 2)
    (incoming / "young").write_bytes(b"half")
    store = ObjectPayloadStore(bucket)
    ref = await store.store(SCOPE, TEXT, MEDIA)
    assert [path.name for path in incoming.iterdir()] == ["young"]
    assert [found.sha256 async for found in store.objects(SCOPE)] == [ref.sha256]


async def test_bytes_and_their_name_are_on_the_disk_before_a_store_returns(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((target.name if target.is_file() else str(target), any(tmp_path.rglob("payloads/sha256/*"))))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    ref = await ObjectPayloadStore(bucket).store(SCOPE, TEXT, MEDIA)
    folder = _file(tmp_path, ref.sha256).parent
    parents = [str(path) for path in (folder, *folder.parents) if path.is_relative_to(tmp_path)]
    assert [name for name, _ in synced[: len(parents)]] == parents
    (_, named_before_sync), (last, named_at_last) = synced[len(parents) :]
    assert not named_before_sync
    assert (last, named_at_last) == (str(folder), True)


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{held.getsockname()[1]}"
        connection = Connection(
            backend="minio", endpoint=endpoint, bucket="abc", access_key="a", secret_key="b", allow_http=True
        )
        with pytest.raises(Unavailable, match="does not answer"):
            await open_object_store(connection).store(SCOPE, TEXT, MEDIA)


async def test_credentials_that_are_refused_are_waited_for() -> None:
    """INV-182: they expire, and clocks go wrong; neither is an error of the work."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403, text="<Error><Code>RequestTimeTooSkewed</Code></Error>")

    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", refuse)
    async with TestServer(application) as server:
        connection = Connection(
            backend="minio", endpoint=str(server.make_url("")).rstrip("/"), bucket="abc", access_key="a", secret_key="b",
            allow_http=True,
        )  # fmt: skip
        with pytest.raises(Unavailable, match="refuses these credentials") as told:
            await open_object_store(connection).store(SCOPE, TEXT, MEDIA)
    assert platform_problem(told.value) is not None


async def test_a_disk_that_cannot_be_written_is_unavailable(tmp_path: Path, bucket: Bucket) -> None:
    (tmp_path / "payloads" / "acme").write_text("a file where a folder should be")
    with pytest.raises(Unavailable, match="cannot write"):
        await ObjectPayloadStore(bucket).store(SCOPE, TEXT, MEDIA)


@pytest.mark.parametrize(
    ("connection", "tier", "uri"),
    [
        (Connection(backend="s3", bucket="abc", region="eu-west-1", prefix="p"), "s3", "s3://abc/p/k"),
        (Connection(backend="minio", bucket="abc", endpoint="http://h:1", allow_http=True), "minio", "s3://abc/k"),
        (Connection(backend="azure", bucket="abc", access_key="acc", secret_key="a2V5"), "object", "az://abc/k"),
        (Connection(backend="memory"), "memory", "memory:/k"),
    ],
    ids=lambda value: value.backend if isinstance(value, Connection) else None,
)
def test_each_backend_names_its_tier_and_its_addresses(connection: Connection, tier: str, uri: str) -> None:
    bucket = open_bucket(connection)
    assert (bucket.tier, bucket.uri("k")) == (tier, uri)


@pytest.mark.parametrize(("backend", "missing"), [("local", "path"), ("s3", "bucket"), ("minio", "endpoint")])
def test_a_connection_that_lacks_something_says_what(backend: Backend, missing: str) -> None:
    bucket = "abc" if missing == "endpoint" else None
    with pytest.raises(ConfigError, match=missing):
        open_bucket(Connection(backend=backend, bucket=bucket))


async def test_the_clock_of_a_store_can_be_given(bucket: Bucket, tmp_path: Path) -> None:
    ref = await ObjectPayloadStore(bucket).store(SCOPE, TEXT, MEDIA)
    before = _file(tmp_path, ref.sha256).stat().st_ino
    later = ObjectPayloadStore(bucket, clock=lambda: datetime.now(UTC) + timedelta(hours=13))
    await later.store(SCOPE, TEXT, MEDIA)
    assert _file(tmp_path, ref.sha256).stat().st_ino != before
