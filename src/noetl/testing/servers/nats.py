"""A pytest plugin: one real NATS server with JetStream per test process, and names of streams that only one test uses."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.runtime.nats.server import NatsServer
from noetl.testing.servers.postgres import quick_place


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """Where the test process's server listens. Its streams are forgotten with it."""
    directory = Path(tempfile.mkdtemp(prefix="noetl-nats-", dir=quick_place()))
    server = NatsServer(directory)
    # A thread of its own, since the loops of tests come and go and a process belongs to the loop that started it.
    with ThreadPoolExecutor(1, thread_name_prefix="noetl-test-nats") as thread:
        runner = thread.submit(asyncio.Runner).result()
        thread.submit(runner.run, server.start()).result()
        try:
            yield server.url
        finally:
            thread.submit(runner.run, server.kill()).result()
            thread.submit(runner.close).result()
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def stream_prefix(monkeypatch: pytest.MonkeyPatch) -> str:
    """What the names of this test's streams and buckets begin with; all its processes have one key to sign writes with."""
    monkeypatch.setenv("NOETL_SECRET_KEY", b64encode(bytes(range(32))).decode())
    return f"t{uuid4().hex[:12]}"


@pytest.fixture
async def nats_connection(nats_url: str) -> AsyncIterator[NatsConnection]:
    """A connection that lives for the test."""
    connection = NatsConnection(nats_url)
    yield connection
    await connection.close()
