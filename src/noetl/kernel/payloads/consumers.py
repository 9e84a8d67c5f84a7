"""Who stores and reads payloads: the execution and frame under whose lease work runs, and the consumer that reads
are counted for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol, runtime_checkable

from noetl.kernel.payloads.port import PayloadStore

LEASE_SECONDS: Final = 60.0
"""How long a lease is taken to last where nobody says."""


class Origin(NamedTuple):
    """The work that stores and reads; zeros where it belongs to no frame or no execution."""

    execution_id: int = 0
    frame_id: int = 0
    lease_seconds: float = LEASE_SECONDS
    proves: bool = False
    """Whether what it reads from memory is proven by its digest."""


_current: ContextVar[Origin] = ContextVar("noetl_payload_origin", default=Origin())  # noqa: B039 - it cannot change


def current_origin() -> Origin:
    """Return the work this code runs for."""
    return _current.get()


@contextmanager
def producing(
    execution_id: int, frame_id: int = 0, lease_seconds: float = LEASE_SECONDS, *, proves: bool = False
) -> Iterator[None]:
    """Say for whom payloads are stored and read inside the block, also by tasks and threads it starts."""
    token = _current.set(Origin(execution_id, frame_id, lease_seconds, proves))
    try:
        yield
    finally:
        _current.reset(token)


@runtime_checkable
class Counting(Protocol):
    """A store that counts who reads."""

    def for_consumer(self, consumer: str) -> PayloadStore:
        """Return the same store, its reads counted for somebody else."""
        ...


def for_consumer(store: PayloadStore, consumer: str) -> PayloadStore:
    """Return the store with its reads counted for a consumer, where reads are counted at all."""
    return store.for_consumer(consumer) if isinstance(store, Counting) else store
