"""Who reads payloads: a store goes in, the same store comes out with its reads counted for a consumer."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from noetl.payloads.port import PayloadStore


@runtime_checkable
class Counting(Protocol):
    """A store that counts who reads."""

    def for_consumer(self, consumer: str) -> PayloadStore:
        """Return the same store, its reads counted for somebody else."""
        ...


def for_consumer(store: PayloadStore, consumer: str) -> PayloadStore:
    """Return the store with its reads counted for a consumer, where reads are counted at all."""
    return store.for_consumer(consumer) if isinstance(store, Counting) else store
