"""What playbooks in these tests talk to: an API, a database of the user's, and a server for tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from examples.pft.mock_api import serve
from tests.integration.engine.tools.conftest import nats_url

from noetl.testing.engines.playbooks import Playbooks

__all__ = ["api", "nats_url", "user_database"]


@pytest.fixture
async def api() -> AsyncIterator[str]:
    """The address of an API of patients with pages, heavy answers and troubles."""
    async with serve() as url:
        yield url


@pytest.fixture
async def user_database(playbooks: Playbooks, empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A database of the user's own, which playbooks know as the credential `pg_local`."""
    await playbooks.credential("pg_local", "postgres", dsn=empty_url)
    connection: asyncpg.Connection = await asyncpg.connect(empty_url)
    yield connection
    await connection.close()
