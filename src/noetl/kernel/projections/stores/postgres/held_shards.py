"""Shards that a projector holds: a shard's lease goes in with every move of its checkpoint, or the move does not happen.

A projector that was paused for longer than its lease finds the shard in other hands and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noetl.errors import LeaseLost
from noetl.kernel.leases.shards import fenced
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.event import Event
from noetl.model.lease import Proof


class Hold(Protocol):
    """What a store asks inside the transaction that moves a checkpoint."""

    async def check(self, connection: Connection, shard: int) -> None:
        """Raise `LeaseLost` unless the shard is held, and keep it held until the transaction ends."""
        ...

    async def moving(self, connection: Connection, shard: int, upto: int, events: Sequence[Event]) -> None:
        """Write what belongs to the move of a checkpoint up to a position by these events."""
        ...


class Tokens(Protocol):
    """The proofs of the leases on shards, such as `ShardLeases` has."""

    def proof(self, shard: int) -> Proof | None:
        """Return what fences writes for a shard that is held."""
        ...


class LeasedShards:
    """A hold by leases on shards."""

    def __init__(self, leases: Tokens) -> None:
        self._leases = leases

    async def check(self, connection: Connection, shard: int) -> None:
        """Look the lease up in the database, which alone knows who holds the shard."""
        proof = self._leases.proof(shard)
        if proof is None or not await fenced(connection, proof):
            raise LeaseLost(f"another projector holds shard {shard} now")

    async def moving(self, connection: Connection, shard: int, upto: int, events: Sequence[Event]) -> None:
        """Write nothing of its own."""
