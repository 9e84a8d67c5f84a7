"""Fixtures: an engine, servers with and without tokens, and callers of every role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.api.serving import HOME, Server, make_engine, make_services, running

from noetl.engine.dispatch.engine import Engine
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.services.credentials.tokens import ROLES

Serve = Callable[..., AbstractAsyncContextManager[Server]]
"""Serves for the time of a block, with or without `auth`, or None while there are tokens; what else is given takes the place of a service."""


@pytest.fixture
def payloads() -> MemoryPayloadStore:
    """Where payloads are kept."""
    return MemoryPayloadStore()


@pytest.fixture
async def engine(database: Database, ledger: PostgresLedger, payloads: MemoryPayloadStore) -> AsyncIterator[Engine]:
    """An engine on the test's database."""
    engine = make_engine(database, ledger, payloads)
    yield engine
    await engine.close()


@pytest.fixture
async def readers(database: Database) -> AsyncIterator[Database]:
    """Connections for people's reads, apart from the workers'."""
    readers = Database(database.url, as_roles=True)
    yield readers
    await readers.close()


@pytest.fixture
def serve(
    database: Database,
    readers: Database,
    ledger: PostgresLedger,
    payloads: MemoryPayloadStore,
    engine: Engine,
    tmp_path: Path,
) -> Serve:
    """Runs a server on the loopback, on the test's database and its engine."""

    def serving(*, auth: bool | None, **changed: Any) -> AbstractAsyncContextManager[Server]:
        keys = tmp_path / "keys"
        services, projections = make_services(database, readers, ledger, payloads, engine, keys, auth=auth)
        return running(replace(services, **changed), projections, auth=bool(auth))

    return serving


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[Server]:
    """A server on the loopback that asks for no tokens."""
    async with serve(auth=False) as server:
        yield server


@pytest.fixture
async def guarded(serve: Serve) -> AsyncIterator[Server]:
    """A server that asks for tokens."""
    async with serve(auth=True) as server:
        yield server


@pytest.fixture
async def bearers(guarded: Server) -> dict[str, dict[str, str]]:
    """For each role, the headers of a caller that has it."""
    found = {}
    for role in ROLES:
        token, _ = await guarded.services.tokens.create(HOME, f"a {role}", role)
        found[role] = {"Authorization": f"Bearer {token.reveal()}"}
    return found
