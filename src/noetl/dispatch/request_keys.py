"""Keys that callers give their requests: a key goes in, and the execution it stands for comes out."""

from __future__ import annotations

from typing import Final

from noetl.errors import KeyReused
from noetl.ledger.database import Database
from noetl.model.stream import Scope

_STANDS_FOR: Final = "SELECT execution_id FROM noetl.idempotency_key WHERE key = $1 AND expires_at > now()"


def request_key(key: str) -> str:
    """Return the idempotency key of the event by which a request with a key begins."""
    return f"request/{key}"


async def stands_for(database: Database, scope: Scope, key: str) -> int | None:
    """Return the execution a key stands for already."""
    async with database.transaction(scope) as connection:
        found: int | None = await connection.fetchval(_STANDS_FOR, request_key(key))
    return found


def reused(key: str, execution_id: int) -> KeyReused:
    """Say that a key stands for an execution that was asked for with something else."""
    return KeyReused(
        f"the key {key!r} stands for execution {execution_id}, which was asked for with something else",
        hint="use a new key for every new request",
    )
