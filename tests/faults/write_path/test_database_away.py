"""PostgreSQL is away for half a minute in the write path `stream`: facts are taken all the while, and all come to the ledger."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.faults.write_path.stream_writer import open_writer, settings_of
from tests.faults.write_path.test_killed_on_the_way import everything_stands

from noetl.errors import Unavailable
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.settings.declaration import Settings

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow]

AWAY_SECONDS = 30.0
TOGETHER = 5
"""Facts that are recorded at once."""
PATIENCE = 60.0


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server of the test's own, which it may stop."""
    server = EmbeddedServer(tmp_path / "database")
    await asyncio.to_thread(server.start)
    try:
        await asyncio.to_thread(migrations.upgrade, server.url())
        yield server
    finally:
        await asyncio.to_thread(server.destroy)


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables that give a process these settings."""
    store, place = settings.event_store, settings.event_store.connection
    assert settings.database.url is not None
    assert place.url is not None
    return {
        "NOETL_HOME": str(settings.runtime.home),
        "NOETL_DATABASE_URL": settings.database.url.get_secret_value(),
        "NOETL_EVENT_STORE__WRITE_PATH": store.write_path,
        "NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": store.distribution_backend,
        "NOETL_EVENT_STORE__CONNECTION__URL": place.url.get_secret_value(),
        "NOETL_EVENT_STORE__CONNECTION__STREAM_PREFIX": place.stream_prefix,
        "NOETL_EVENT_STORE__LEASE_SECONDS": str(store.lease_seconds),
    }


def assert_verified(settings: Settings) -> None:
    """See that `noetl verify` finds nothing."""
    environ = environment(settings) | {"NOETL_EVENT_STORE__WRITE_PATH": "ledger"}
    command = [sys.executable, "-m", "noetl", "verify", "--all"]
    found = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


async def test_facts_are_taken_for_half_a_minute_without_postgresql(
    postgres: EmbeddedServer, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-115."""
    settings = settings_of(postgres.url("noetl_owner"), tmp_path / "home", nats_url, stream_prefix)
    acknowledged: set[int] = set()
    async with open_writer(settings) as writer:

        async def one(number: int) -> None:
            draft = writer.fact(f"thing-{number % 5}")
            await writer.facts.record(draft)
            acknowledged.add(draft.event_id)

        await writer.write(30, acknowledged.add)
        await asyncio.to_thread(postgres.stop)
        began, before = time.monotonic(), len(acknowledged)
        # A decision is about rows: it waits for them for a while, is refused then, and nothing of it stays.
        refused = writer.fact("thing-0")
        deciding = asyncio.create_task(writer.runtime.ledger.append(refused.stream, [refused]))
        while time.monotonic() < began + AWAY_SECONDS:
            await asyncio.gather(*map(one, range(TOGETHER)))
            with pytest.raises(Unavailable):
                await writer.runtime.database.connect()
        assert len(acknowledged) > before + AWAY_SECONDS
        with pytest.raises(Unavailable):
            await deciding
        await asyncio.to_thread(postgres.start)
        await writer.write(30, acknowledged.add)
    await everything_stands(settings, acknowledged)
    await asyncio.to_thread(assert_verified, settings)


class Api:
    """`noetl server` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self._url = url

    def ask(self, path: str, body: Any = None, **headers: str) -> Any:
        """Return the JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        asked = Request(self._url + path, data, {"Content-Type": "application/json"} | headers)
        with urlopen(asked, timeout=PATIENCE) as answer:
            return json.load(answer)

    def fact(self, number: int) -> dict[str, Any]:
        """Record a fact and return what is told of it."""
        thing = f"thing-{number % 5}"
        body = {"event_type": "business.thing.seen", "aggregate_id": thing, "stream_id": f"business/{thing}"}
        found: dict[str, Any] = self.ask("/api/events", body)
        return found

    def read(self, fact: dict[str, Any]) -> dict[str, Any]:
        """Read a fact by its token, as often as it takes until the database is back and has it."""
        path, deadline = f"/api/events/{fact['event_id']}", time.monotonic() + PATIENCE
        while True:
            try:
                found: dict[str, Any] = self.ask(path, **{"Noetl-Read-Token": fact["read_token"]})
            except HTTPError as problem:
                if problem.code != 503 or time.monotonic() > deadline:
                    raise
            else:
                return found


@contextmanager
def serving(settings: Settings, log: Path) -> Iterator[Api]:
    """Give a server; nothing of it stays."""
    with log.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "noetl", "server", "--port", "0"],
            env=os.environ | environment(settings), stdout=subprocess.PIPE, stderr=told, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        said = next((line for line in process.stdout if line.startswith("listening on ")), None)
        assert said is not None, log.read_text()
        yield Api(process, said.split()[-1])
    finally:
        process.kill()
        process.communicate()


def test_a_server_takes_facts_for_half_a_minute_without_postgresql_and_goes_on(
    postgres: EmbeddedServer, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-115."""
    settings = settings_of(postgres.url("noetl_owner"), tmp_path / "home", nats_url, stream_prefix)
    with serving(settings, tmp_path / "server.log") as api:
        taken = [api.fact(number) for number in range(10)]
        postgres.stop()
        began, before = time.monotonic(), len(taken)
        while time.monotonic() < began + AWAY_SECONDS:
            taken.append(api.fact(len(taken)))
            with pytest.raises(HTTPError) as refused:
                api.ask("/api/health")
            assert refused.value.code == 503
        assert len(taken) > before + AWAY_SECONDS
        postgres.start()
        assert api.read(taken[-1])["event_id"] == taken[-1]["event_id"]
        api.process.send_signal(signal.SIGTERM)
        assert api.process.wait(PATIENCE) == 0, (tmp_path / "server.log").read_text()
    asyncio.run(everything_stands(settings, {int(one["event_id"]) for one in taken}))
    assert_verified(settings)
