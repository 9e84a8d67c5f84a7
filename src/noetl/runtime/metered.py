"""A payload store that tells how many bytes pass through it; otherwise the store it stands for."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.payloads.consumers import for_consumer
from noetl.payloads.port import PayloadStore
from noetl.runtime.telemetry import TIERS, Metrics


class MeteredPayloads:
    """Counts what is stored and fetched; see `PayloadStore` for the promises."""

    def __init__(self, store: PayloadStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._tier = store.store_tier if store.store_tier in TIERS else "object"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def for_consumer(self, consumer: str) -> MeteredPayloads:
        """Return the same store, its reads counted for somebody else."""
        return MeteredPayloads(for_consumer(self._store, consumer), self._metrics)

    async def store(
        self,
        scope: Scope,
        data: bytes | AsyncIterable[bytes],
        media_type: str,
        *,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep bytes and count them."""
        ref = await self._store.store(scope, data, media_type, rows=rows, schema_digest=schema_digest)
        self._metrics.payload_bytes(self._tier, "written", ref.bytes)
        return ref

    async def view(self, scope: Scope, ref: PayloadRef) -> memoryview:
        """Return bytes where they lie and count them."""
        data = await self._store.view(scope, ref)
        self._metrics.payload_bytes(self._tier, "read", len(data))
        return data

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return bytes and count them."""
        data = await self._store.fetch(scope, ref)
        self._metrics.payload_bytes(self._tier, "read", len(data))
        return data
