"""A payload store in the process's memory, for tests and simulation: the reference the real ones are compared with."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from datetime import UTC, datetime

from noetl import faults
from noetl.errors import PayloadMissing
from noetl.kernel.payloads.port import StoredObject, StoreTier, damaged, object_key, object_prefix, referred_key
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope


class MemoryPayloadStore:
    """Keeps plain bytes in a dictionary. Nothing survives the process."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.kept: dict[str, tuple[bytes, datetime]] = {}
        self._clock = clock

    @property
    def store_tier(self) -> StoreTier:
        """Where the bytes of this store are."""
        return "memory"

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
        faults.reach("externalize.before_store")
        plain = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join([p async for p in data])
        sha256 = hashlib.sha256(plain).hexdigest()
        faults.reach("externalize.after_spool")
        # Writing anew heals a damaged object and sets its time, all at once.
        self.kept[object_key(scope, sha256)] = (plain, self._clock())
        faults.reach("externalize.after_store")
        return PayloadRef(
            uri=payload_uri(scope.tenant_id, scope.organization_id, sha256),
            sha256=sha256,
            media_type=media_type,
            bytes=len(plain),
            stored_sha256=sha256,
            rows=rows,
            schema_digest=schema_digest,
        )

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the plain bytes, proven by their digest."""
        await self.check(scope, ref)
        return self.kept[referred_key(scope, ref)][0]

    async def view(self, scope: Scope, ref: PayloadRef) -> memoryview:
        """Return the plain bytes, proven by their digest."""
        return memoryview(await self.fetch(scope, ref))

    async def stream(self, scope: Scope, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the plain bytes; the first piece comes after the last is proven."""
        plain = await self.fetch(scope, ref)
        for start in range(0, len(plain), 1 << 20):
            yield plain[start : start + (1 << 20)]

    async def check(self, scope: Scope, ref: PayloadRef) -> None:
        """Prove the stored object against `stored_sha256`."""
        key = referred_key(scope, ref)
        if key not in self.kept:
            raise PayloadMissing(f"there is no object {key}", key=key)
        if hashlib.sha256(self.kept[key][0]).hexdigest() != ref.stored_sha256:
            raise damaged(ref, key, "it does not match its digest")

    async def exists(self, scope: Scope, ref: PayloadRef) -> bool:
        """Tell whether there is an object under the reference's digest."""
        return referred_key(scope, ref) in self.kept

    async def find(self, scope: Scope, sha256: str) -> StoredObject | None:
        """Describe the object under a digest, or return None if there is none."""
        found = self.kept.get(object_key(scope, sha256))
        return found and StoredObject(sha256=sha256, stored_bytes=len(found[0]), modified=found[1])

    async def objects(self, scope: Scope) -> AsyncIterator[StoredObject]:
        """Yield every object of the scope."""
        prefix = object_prefix(scope) + "/"
        for key, (plain, modified) in list(self.kept.items()):
            if key.startswith(prefix):
                yield StoredObject(sha256=key.removeprefix(prefix), stored_bytes=len(plain), modified=modified)

    async def delete(self, scope: Scope, sha256: str) -> None:
        """Remove an object; to remove what is not there is no error."""
        self.kept.pop(object_key(scope, sha256), None)

    @property
    def address(self) -> str:
        """What all addresses begin with."""
        return "memory://"

    def physical_uri(self, scope: Scope, ref: PayloadRef) -> str:
        """Return an address that only this process understands."""
        return f"{self.address}/{referred_key(scope, ref)}"
