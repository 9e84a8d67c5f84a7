"""Keys that callers give their requests: a key goes in, and the execution it stands for comes out."""

from __future__ import annotations

from noetl.engine.dispatch.facts.port import Facts
from noetl.errors import KeyReused
from noetl.model.stream import Scope


def request_key(key: str) -> str:
    """Return the idempotency key of the event by which a request with a key begins."""
    return f"request/{key}"


async def stands_for(facts: Facts, scope: Scope, key: str) -> int | None:
    """Return the execution a key stands for already."""
    return await facts.execution_of(scope, request_key(key))


def reused(key: str, execution_id: int) -> KeyReused:
    """Say that a key stands for an execution that was asked for with something else."""
    return KeyReused(
        f"the key {key!r} stands for execution {execution_id}, which was asked for with something else",
        hint="use a new key for every new request",
    )
