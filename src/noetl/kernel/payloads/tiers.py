"""The payload store as a chain of tiers: this process, the node's shared memory, the node's disk, the durable store.

Writes reach the durable store first, always. Reads take the nearest tier that has the payload and fill the ones
above.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

import msgspec

from noetl import faults
from noetl.kernel.payloads.codec import ARROW_STREAM
from noetl.kernel.payloads.consumers import current_origin
from noetl.kernel.payloads.disk import DiskCache
from noetl.kernel.payloads.envelope import FIELDS
from noetl.kernel.payloads.figures import Figures, Tier
from noetl.kernel.payloads.keys import TenantKeys
from noetl.kernel.payloads.lru import ByteLru
from noetl.kernel.payloads.port import PayloadStore, StoredObject, StoreTier, referred_key
from noetl.kernel.payloads.shared_memory.port import NodeMemory
from noetl.model.payload_ref import HintedRef, PayloadRef
from noetl.model.stream import Scope

_AT_ONCE: Final = 128 << 10
_PIECE: Final = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")


class TieredPayloads:
    """The durable store with tiers before it; see `PayloadStore` for the promises."""

    def __init__(
        self, durable: PayloadStore, tiers: Tiers, *, keys: TenantKeys | None = None, consumer: str = "process"
    ) -> None:
        self.durable = durable
        """The store that is right whatever happens here."""
        self.tiers = tiers
        self.consumer = consumer
        self._keys = keys

    def for_consumer(self, consumer: str) -> TieredPayloads:
        """Return the same store, its reads counted for somebody else."""
        return TieredPayloads(self.durable, self.tiers, keys=self._keys, consumer=consumer)

    @property
    def store_tier(self) -> StoreTier:
        """Where the durable bytes are."""
        return self.durable.store_tier

    async def store(
        self,
        scope: Scope,
        data: bytes | AsyncIterable[bytes],
        media_type: str,
        *,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep the bytes durably, then offer them to the node."""
        ref = await self.durable.store(scope, data, media_type, rows=rows, schema_digest=schema_digest)
        self.tiers.figures.wrote("object", ref.bytes)
        faults.reach("payload.after_durable")
        if isinstance(data, bytes | bytearray | memoryview):
            # Fields of an event are read by a projector as soon as the event is there.
            await self._offer(self._key(scope, ref), ref, data, disk=True, memory=media_type == FIELDS)
        self.tiers.after()
        return ref

    async def view(self, scope: Scope, ref: PayloadRef) -> memoryview:
        """Return the plain bytes for use on this node, where they lie if that can be; they are not to be changed.

        What comes from memory is proven only where that is asked for; what comes from a disk or a store always is.
        """
        return memoryview(await self._read(scope, ref, prove=self._distrusts()))

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the plain bytes, proven by their digest."""
        data = await self._read(scope, ref, prove=True)
        return data if isinstance(data, bytes) else await _off_loop(ref.bytes, bytes, data)

    async def stream(self, scope: Scope, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the plain bytes in pieces; the first piece comes after the last is proven."""
        near = await self._near(scope, ref, prove=True)
        if near is None:
            self.tiers.figures.read(self.consumer, "object", ref.bytes)
            async for piece in self.durable.stream(scope, ref):
                yield piece
            return
        for start in range(0, ref.bytes, _PIECE):
            yield bytes(near[start : start + _PIECE])

    async def hinted(self, scope: Scope, ref: PayloadRef) -> PayloadRef:
        """Return the reference with the hint of this node, for a process beside this one; never for an event."""
        hint = self.tiers.ipc.hint(self._key(scope, ref)) if self.tiers.ipc else None
        return ref if hint is None else HintedRef(**msgspec.structs.asdict(ref), ipc=hint)

    async def check(self, scope: Scope, ref: PayloadRef) -> None:
        """Prove the stored object; no tier before it is asked."""
        await self.durable.check(scope, ref)

    async def exists(self, scope: Scope, ref: PayloadRef) -> bool:
        """Tell whether there is a durable object under the reference's digest."""
        return await self.durable.exists(scope, ref)

    async def find(self, scope: Scope, sha256: str) -> StoredObject | None:
        """Describe the durable object under a digest."""
        return await self.durable.find(scope, sha256)

    async def objects(self, scope: Scope) -> AsyncIterator[StoredObject]:
        """Yield every durable object of the scope."""
        async for found in self.durable.objects(scope):
            yield found

    async def delete(self, scope: Scope, sha256: str) -> None:
        """Remove an object from every tier this process reaches."""
        await self.durable.delete(scope, sha256)
        self.forget(scope, sha256)

    def forget(self, scope: Scope, sha256: str) -> None:
        """Forget a payload in every tier but the durable one."""
        key = self._digest_key(scope, sha256)
        if self.tiers.memory is not None:
            self.tiers.memory.drop(key)
        if self.tiers.ipc is not None:
            self.tiers.ipc.drop(key)
        if self.tiers.disk is not None:
            self.tiers.disk.drop(key)

    @property
    def address(self) -> str:
        """What the addresses of durable objects begin with."""
        return self.durable.address

    def physical_uri(self, scope: Scope, ref: PayloadRef) -> str:
        """Return the address of the durable object."""
        return self.durable.physical_uri(scope, ref)

    async def _read(self, scope: Scope, ref: PayloadRef, *, prove: bool) -> bytes | memoryview:
        near = await self._near(scope, ref, prove=prove)
        if near is not None:
            return near
        data = await self.durable.fetch(scope, ref)
        self.tiers.figures.read(self.consumer, "object", len(data))
        await self._offer(self._key(scope, ref), ref, data, disk=True, memory=True)
        self.tiers.after()
        return data

    async def _near(self, scope: Scope, ref: PayloadRef, *, prove: bool) -> bytes | memoryview | None:
        """Return the bytes from a tier before the durable one, or None."""
        referred_key(scope, ref)
        if self._keys is not None:
            # Whose key is destroyed is erased in memory too.
            self._keys.key(scope.tenant_id)
        tiers, key = self.tiers, self._key(scope, ref)
        found: bytes | memoryview | None
        found = None if tiers.memory is None else tiers.memory.get(key)
        if found is not None and (not self._distrusts() or await self._proven("memory", key, ref, found)):
            return self._served("memory", found)
        found = None if tiers.ipc is None or not ref.schema_digest else tiers.ipc.attach(key, ref)
        if found is not None and (not prove or await self._proven("ipc", key, ref, found)):
            return self._served("ipc", found)
        if tiers.disk is not None:
            found = await asyncio.to_thread(tiers.disk.get, key, ref.sha256, ref.bytes)
            if found is not None:
                await self._offer(key, ref, found, memory=True)
                return self._served("disk", found)
        return None

    def _distrusts(self) -> bool:
        """Tell whether bytes in memory are to be proven: by the settings, or for the frame that reads them."""
        return self.tiers.verify_ipc or current_origin().proves

    def _served(self, tier: Tier, data: bytes | memoryview) -> bytes | memoryview:
        self.tiers.figures.read(self.consumer, tier, len(data))
        self.tiers.after()
        return data

    async def _proven(self, tier: Tier, key: str, ref: PayloadRef, data: bytes | memoryview) -> bool:
        digest = await _off_loop(ref.bytes, lambda: hashlib.sha256(data).hexdigest())
        if digest == ref.sha256:
            return True
        self.tiers.figures.passed(tier, "digest")
        if tier == "memory" and self.tiers.memory is not None:
            self.tiers.memory.drop(key)
        elif self.tiers.ipc is not None:
            self.tiers.ipc.drop(key)
        return False

    async def _offer(
        self, key: str, ref: PayloadRef, data: bytes | memoryview, *, disk: bool = False, memory: bool = False
    ) -> None:
        """Fill the tiers above; a table goes to the node's memory, which serves this process as well."""
        tiers = self.tiers
        if tiers.disk is not None and disk:
            await asyncio.to_thread(tiers.disk.put, key, data)
        if tiers.ipc is not None and ref.schema_digest and ref.media_type == ARROW_STREAM:
            put = tiers.ipc.put
            if await _off_loop(len(data), put, key, data, ref.schema_digest, current_origin()) is not None:
                return
        if tiers.memory is not None and memory and isinstance(data, bytes) and tiers.memory.put(key, data):
            tiers.figures.wrote("memory", len(data))

    def _key(self, scope: Scope, ref: PayloadRef) -> str:
        return self._digest_key(scope, ref.sha256)

    def _digest_key(self, scope: Scope, sha256: str) -> str:
        """Return what a payload is called in the tiers: nothing of another organization or store has the same."""
        parts = (self.tiers.realm, scope.tenant_id, scope.organization_id, sha256)
        return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=20).hexdigest()


def durable_of(store: PayloadStore) -> PayloadStore:
    """Return the store without its tiers, for whoever has to prove what is durable."""
    return store.durable if isinstance(store, TieredPayloads) else store


async def _off_loop(size: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    if size <= _AT_ONCE:
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)


@dataclass(frozen=True)
class Tiers:
    """What stands before the durable store; a tier that is None is turned off."""

    figures: Figures = field(default_factory=Figures)
    memory: ByteLru | None = None
    ipc: NodeMemory | None = None
    disk: DiskCache | None = None
    realm: str = ""
    """Which durable store this is: two projects of one node never read each other's tiers."""
    verify_ipc: bool = False
    """Whether bytes in memory are proven by their digest at every read."""
    after: Callable[[], None] = lambda: None
    """Called now and then, so that figures are told."""
