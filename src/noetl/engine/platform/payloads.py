"""The payload store of a worker: while the store is away, or has no room, whoever needs it waits."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from noetl.engine.platform.waits import answered
from noetl.kernel.payloads.consumers import for_consumer
from noetl.kernel.payloads.port import PayloadStore, StoredObject, StoreTier
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_PART: Final = "payload store"


class PatientPayloads:
    """A store that is waited for; see `PayloadStore` for the promises."""

    def __init__(self, store: PayloadStore) -> None:
        self._store = store

    def for_consumer(self, consumer: str) -> PayloadStore:
        """Return the same store, its reads counted for somebody else."""
        return PatientPayloads(for_consumer(self._store, consumer))

    @property
    def store_tier(self) -> StoreTier:
        """Where the bytes are."""
        return self._store.store_tier

    async def store(
        self,
        scope: Scope,
        data: bytes | AsyncIterable[bytes],
        media_type: str,
        *,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep the bytes; those that come in pieces cannot be asked for twice, so a failure of theirs is told."""

        async def store() -> PayloadRef:
            return await self._store.store(scope, data, media_type, rows=rows, schema_digest=schema_digest)

        return await (answered(_PART, store) if isinstance(data, bytes | bytearray | memoryview) else store())

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the plain bytes."""
        return await answered(_PART, lambda: self._store.fetch(scope, ref))

    async def view(self, scope: Scope, ref: PayloadRef) -> memoryview:
        """Return the plain bytes for use on this node."""
        return await answered(_PART, lambda: self._store.view(scope, ref))

    async def stream(self, scope: Scope, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the plain bytes in pieces; the first comes once the last is proven, so the store is needed no longer."""

        async def begun() -> tuple[AsyncIterator[bytes], bytes | None]:
            pieces = aiter(self._store.stream(scope, ref))
            return pieces, await anext(pieces, None)

        pieces, first = await answered(_PART, begun)
        if first is not None:
            yield first
            async for piece in pieces:
                yield piece

    async def check(self, scope: Scope, ref: PayloadRef) -> None:
        """Prove the stored object."""
        await answered(_PART, lambda: self._store.check(scope, ref))

    async def exists(self, scope: Scope, ref: PayloadRef) -> bool:
        """Tell whether there is an object."""
        return await answered(_PART, lambda: self._store.exists(scope, ref))

    async def find(self, scope: Scope, sha256: str) -> StoredObject | None:
        """Describe the object under a digest."""
        return await answered(_PART, lambda: self._store.find(scope, sha256))

    def objects(self, scope: Scope) -> AsyncIterator[StoredObject]:
        """Yield every object of the scope."""
        return self._store.objects(scope)

    async def delete(self, scope: Scope, sha256: str) -> None:
        """Remove an object."""
        await answered(_PART, lambda: self._store.delete(scope, sha256))

    @property
    def address(self) -> str:
        """What the addresses of all objects begin with."""
        return self._store.address

    def physical_uri(self, scope: Scope, ref: PayloadRef) -> str:
        """Return the address of the object in its backend."""
        return self._store.physical_uri(scope, ref)
