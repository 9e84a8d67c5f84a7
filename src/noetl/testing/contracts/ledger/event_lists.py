"""Reads a ledger into lists, for tests."""

from __future__ import annotations

from noetl.kernel.ledger.port import Ledger
from noetl.model.event import Event
from noetl.model.stream import SHARD_COUNT, Scope, Stream


async def read(ledger: Ledger, stream: Stream, from_version: int = 1) -> list[Event]:
    """Return the events of a stream."""
    return [event async for event in ledger.read(stream, from_version)]


async def read_execution(
    ledger: Ledger, scope: Scope, execution_id: int, from_position: int = 1, to_position: int | None = None
) -> list[Event]:
    """Return the events of an execution."""
    return [event async for event in ledger.read_execution(scope, execution_id, from_position, to_position)]


async def read_shard(
    ledger: Ledger,
    shard: int,
    from_position: int = 1,
    *,
    scope: Scope | None = None,
    to_position: int | None = None,
) -> list[Event]:
    """Return the events of a shard."""
    return [event async for event in ledger.read_shard(shard, from_position, scope=scope, to_position=to_position)]


async def everything(ledger: Ledger, scope: Scope | None = None) -> list[Event]:
    """Return all events, shard by shard."""
    return [event for shard in range(SHARD_COUNT) for event in await read_shard(ledger, shard, scope=scope)]
