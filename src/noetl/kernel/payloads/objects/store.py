"""The payload store over a bucket: local files, S3 and compatible servers, GCS, Azure, memory. See `port` for the promise."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO, NamedTuple, ParamSpec, TypeVar

from noetl import faults
from noetl.errors import ConfigError, Corrupt, PayloadMissing, Unavailable
from noetl.kernel.payloads.keys import TenantKeys
from noetl.kernel.payloads.objects.bucket import Bucket
from noetl.kernel.payloads.objects.sealed_object import BLOCK, Opener, Sealed, Sealer, new_spool
from noetl.kernel.payloads.port import StoredObject, StoreTier, damaged, object_key, object_prefix, referred_key
from noetl.model.payload_ref import Encoding, PayloadRef, payload_uri
from noetl.model.stream import Scope

DEFAULT_GRACE = timedelta(hours=24)
"""How long garbage collection leaves a fresh object alone; its event must be appended within half of it."""

_ATTEMPTS = 5
_AT_ONCE = 128 << 10

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=IO[bytes])


class _Standing(NamedTuple):
    """What is in the store under a key, proven."""

    encoding: Encoding
    stored_sha256: str


class ObjectPayloadStore:
    """Payloads as objects, optionally compressed with zstd and encrypted under the tenant's key.

    Encodings belong to the object: turning compression or encryption on or off leaves older objects readable, and a
    payload that is stored already keeps the encoding it has.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        compress: bool = False,
        keys: TenantKeys | None = None,
        grace: timedelta = DEFAULT_GRACE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.bucket = bucket
        self._keys = keys
        self._grace = grace
        self._clock = clock
        self._encoding: Encoding = "identity"
        if compress or keys is not None:
            encrypted: Encoding = "zstd+aes256gcm" if compress else "aes256gcm"
            self._encoding = encrypted if keys is not None else "zstd"

    @property
    def store_tier(self) -> StoreTier:
        """Where the bytes of this store are."""
        return self.bucket.tier

    async def store(
        self,
        scope: Scope,
        data: bytes | AsyncIterable[bytes],
        media_type: str,
        *,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep the bytes and return their reference."""
        object_prefix(scope)
        key = self._keys.key(scope.tenant_id) if self._keys else None
        faults.reach("externalize.before_store")
        with _spooling():
            sealer = Sealer(self._encoding, self.bucket.spool_directory)
        try:
            async for block in _blocks(data):
                with _spooling():
                    await _off_loop(len(block), sealer.write, block)
            with _spooling():
                sealed = await _off_loop(sealer.size, sealer.finish, key)
            faults.reach("externalize.after_spool")
            standing = await self._place(scope, sealed)
        finally:
            sealer.close()
        faults.reach("externalize.after_store")
        return PayloadRef(
            uri=payload_uri(scope.tenant_id, scope.organization_id, sealed.sha256),
            sha256=sealed.sha256,
            media_type=media_type,
            bytes=sealed.bytes,
            stored_sha256=standing.stored_sha256,
            encoding=standing.encoding,
            rows=rows,
            schema_digest=schema_digest,
        )

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the plain bytes, proven by their digest."""
        with await self._open(scope, ref, io.BytesIO) as memory:
            return memory.getvalue()

    async def view(self, scope: Scope, ref: PayloadRef) -> memoryview:
        """Return the plain bytes, proven by their digest."""
        return memoryview(await self.fetch(scope, ref))

    async def stream(self, scope: Scope, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the plain bytes in pieces; the first piece comes after the last is proven."""
        with await self._open(scope, ref, self._new_spool) as spool:
            spool.seek(0)
            while piece := await _off_loop(ref.bytes, spool.read, BLOCK):
                yield piece

    async def check(self, scope: Scope, ref: PayloadRef) -> None:
        """Prove the stored object against `stored_sha256`, without any key."""
        key = referred_key(scope, ref)
        found = await self._stored_digest(key)
        if found != ref.stored_sha256:
            raise damaged(ref, key, f"it has the digest {found}, its reference says {ref.stored_sha256}")

    async def exists(self, scope: Scope, ref: PayloadRef) -> bool:
        """Tell whether there is an object under the reference's digest."""
        return await self.bucket.find(referred_key(scope, ref)) is not None

    async def find(self, scope: Scope, sha256: str) -> StoredObject | None:
        """Describe the object under a digest, or return None if there is none."""
        found = await self.bucket.find(object_key(scope, sha256))
        return found and StoredObject(sha256=sha256, stored_bytes=found.size, modified=found.modified)

    async def objects(self, scope: Scope) -> AsyncIterator[StoredObject]:
        """Yield every object of the scope."""
        prefix = object_prefix(scope)
        async for found in self.bucket.list(prefix):
            sha256 = found.key.removeprefix(f"{prefix}/")
            if len(sha256) == 64 and "/" not in sha256:
                yield StoredObject(sha256=sha256, stored_bytes=found.size, modified=found.modified)

    async def delete(self, scope: Scope, sha256: str) -> None:
        """Remove an object; to remove what is not there is no error."""
        await self.bucket.delete(object_key(scope, sha256))

    @property
    def address(self) -> str:
        """What the addresses of objects in the backend begin with."""
        return self.bucket.uri("").rstrip("/")

    def physical_uri(self, scope: Scope, ref: PayloadRef) -> str:
        """Return the address of the object in its backend."""
        return self.bucket.uri(referred_key(scope, ref))

    async def _place(self, scope: Scope, sealed: Sealed) -> _Standing:
        """Put the sealed payload where it belongs, or make sure that what is there already is as good."""
        key = object_key(scope, sealed.sha256)
        ours = _Standing(sealed.encoding, sealed.stored_sha256)
        for _ in range(_ATTEMPTS):
            if await self.bucket.put(key, sealed.spool, sealed.stored_bytes, replace=False):
                return ours
            # Garbage collection may take the object between our put and our look; then it is ours to write.
            with suppress(PayloadMissing):
                return await self._adopt(scope, key, sealed, ours)
        raise Unavailable(f"the object {key} comes and goes; is something deleting it?", key=key)

    async def _adopt(self, scope: Scope, key: str, sealed: Sealed, ours: _Standing) -> _Standing:
        try:
            standing = await self._prove(scope, key, sealed, ours)
        except Corrupt:
            await self.bucket.put(key, sealed.spool, sealed.stored_bytes, replace=True)
            return ours
        found = await self.bucket.find(key)
        if found is None:
            raise PayloadMissing(key=key)
        if self._clock() - found.modified > self._grace / 2:
            await self._refresh(key, sealed, same=standing == ours)
        return standing

    async def _prove(self, scope: Scope, key: str, sealed: Sealed, ours: _Standing) -> _Standing:
        stored_sha256 = await self._stored_digest(key)
        if stored_sha256 == ours.stored_sha256:
            return ours
        if stored_sha256 == sealed.sha256:
            return _Standing("identity", stored_sha256)
        spool, encoding = await self._decode(scope, key, sealed, self._new_spool, as_is=False)
        spool.close()
        return _Standing(encoding, stored_sha256)

    async def _refresh(self, key: str, sealed: Sealed, *, same: bool) -> None:
        """Write the same object anew, which sets its time; one in another encoding keeps the bytes that refs name."""
        if same:
            await self.bucket.put(key, sealed.spool, sealed.stored_bytes, replace=True)
            return
        with _spooling():
            spool = self._new_spool()
        with spool as copy:
            async for piece in self.bucket.read(key):
                with _spooling():
                    await _off_loop(len(piece), copy.write, piece)
            await self.bucket.put(key, copy, copy.tell(), replace=True)

    async def _stored_digest(self, key: str) -> str:
        digest = hashlib.sha256()
        async for piece in self.bucket.read(key):
            await _off_loop(len(piece), digest.update, piece)
        return digest.hexdigest()

    async def _open(self, scope: Scope, ref: PayloadRef, new_spool: Callable[[], S]) -> S:
        """Return a spool with the proven plain bytes.

        The object says itself how it is encoded, since it may have been healed after the encoding changed. Only plain
        bytes that look like a head are ambiguous, so when one reading fails the other is tried; the digest decides.
        """
        key = referred_key(scope, ref)
        as_is = ref.encoding == "identity"
        try:
            return (await self._decode(scope, key, ref, new_spool, as_is=as_is))[0]
        except Corrupt as first:
            try:
                return (await self._decode(scope, key, ref, new_spool, as_is=not as_is))[0]
            except Corrupt:
                raise damaged(ref, key, first.message) from first

    async def _decode(
        self, scope: Scope, key: str, wanted: PayloadRef | Sealed, new_spool: Callable[[], S], *, as_is: bool
    ) -> tuple[S, Encoding]:
        with _spooling():
            spool = new_spool()
        opener = Opener(spool, lambda: self._tenant_key(scope), wanted.bytes, as_is=as_is)
        try:
            async for piece in self.bucket.read(key):
                with _spooling():
                    await _off_loop(len(piece), opener.feed, piece)
            with _spooling():
                await _off_loop(wanted.bytes, opener.finish, wanted.sha256)
        except BaseException:
            spool.close()
            raise
        return spool, opener.encoding

    def _new_spool(self) -> IO[bytes]:
        return new_spool(self.bucket.spool_directory)

    def _tenant_key(self, scope: Scope) -> bytes:
        if self._keys is None:
            raise ConfigError("this payload is encrypted, and no tenant keys are configured")
        return self._keys.key(scope.tenant_id)


@contextmanager
def _spooling() -> Iterator[None]:
    """Say of a disk that takes or gives no bytes on their way that the store is away, for that is what it means."""
    try:
        yield
    except OSError as problem:
        raise Unavailable(f"the payload store cannot spool: {problem.strerror or type(problem).__name__}") from problem


async def _off_loop(size: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work on many bytes in a thread, since hashing or writing a MiB would hold up everybody else."""
    if size <= _AT_ONCE:
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)


async def _blocks(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(data, bytes | bytearray | memoryview):
        for start in range(0, len(data), BLOCK):
            yield data[start : start + BLOCK]
        return
    async for piece in data:
        yield piece
