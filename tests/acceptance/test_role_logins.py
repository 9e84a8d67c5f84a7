"""Roles that log in to the database as themselves: each has the rights of its own role, and needs no other."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.runtime.config import load_settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.engines.parity import assert_parity
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.projected_ledger import HOME, a_run, record

pytestmark = pytest.mark.service

Noetl = Callable[..., tuple[int, str, str]]
PATIENCE = 30
ROLES = ("projector", "relay", "materializer")


class Process:
    """A role in a process of its own, logged in as the database role that it is given."""

    def __init__(self, log: Path, url: str, *arguments: str) -> None:
        self.log = log
        with log.open("w") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "noetl", *arguments],
                env=os.environ | {"NOETL_METRICS_PORT": "0", "NOETL_DATABASE_URL": url},
                stdout=subprocess.PIPE, stderr=told, text=True,
            )  # fmt: skip

    def line(self, beginning: str) -> str:
        """Wait for a line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.rstrip("\n")
        raise AssertionError(self.log.read_text())

    def ended(self) -> str:
        """Tell it to stop, and return what it logged."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()
        return self.log.read_text()


Begin = Callable[..., Process]


@pytest.fixture
def begin(noetl: Noetl, owner_url: str, tmp_path: Path) -> Iterator[Begin]:
    """Starts a role with the login of a database role; none outlives the test."""
    started: list[Process] = []

    def begun(login: str, *arguments: str) -> Process:
        url = as_role(owner_url, login)
        started.append(Process(tmp_path / f"{len(started)}.log", url, *arguments))
        return started[-1]

    yield begun
    for one in started:
        one.process.kill()
        one.process.communicate()


def as_role(url: str, role: str) -> str:
    """Return the URL with another login."""
    return url.replace("noetl_owner@", f"noetl_{role}@")


def with_runtime(do: Callable[[Runtime], Awaitable[None]]) -> None:
    async def doing() -> None:
        async with open_runtime(load_settings()) as runtime:
            await do(runtime)

    asyncio.run(doing())


def rights(owner_url: str) -> set[tuple[str, str]]:
    """Return the logins of roles that are connected now, each with the role it speaks as."""
    query = "SELECT usename, application_name FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(owner_url) as owner:
        return {(login, told) for login, told in owner.execute(query) if login != "noetl_owner"}


def figures(role: Process, after: str) -> list[str]:
    """Return the lines of the role's metrics, once it has said that it is at work."""
    where = role.line("metrics on ").removeprefix("metrics on ")
    role.line(after)
    with urlopen(where, timeout=PATIENCE) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return lines


def test_a_projector_works_with_the_rights_of_its_role_alone(
    begin: Begin, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-121."""
    monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", "false")
    monkeypatch.setenv("NOETL_EVENT_STORE__REPLAY__SNAPSHOT_INTERVAL_EVENTS", "10")
    projector = begin("projector", "projector")
    assert "noetl_backlog_read_failures_total 0.0" in figures(projector, "shards: 0 1 2")

    async def recorded(runtime: Runtime) -> None:
        await record(runtime.ledger, a_run(HOME, 12))
        head = await runtime.ledger.head()

        async def projected() -> bool:
            return (await runtime.projections.checkpoints()).covers(head)

        await until(projected, "all events projected")
        await assert_parity(runtime.database, runtime.ledger)

        async def kept() -> bool:
            async with runtime.database.transaction(HOME) as connection:
                return bool(await connection.fetchval("SELECT count(*) FROM noetl.snapshot"))

        await until(kept, "a snapshot")

    with_runtime(recorded)
    assert rights(owner_url) == {("noetl_projector", "noetl_projector")}
    log = projector.ended()
    assert "Traceback" not in log
    assert "WARNING" not in log


def test_a_relay_and_a_materializer_carry_events_with_the_rights_of_their_roles_alone(
    begin: Begin, owner_url: str, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-113."""
    for name, value in {
        "WRITE_PATH": "stream",
        "DISTRIBUTION_BACKEND": "nats-jetstream",
        "CONNECTION__URL": nats_url,
        "CONNECTION__STREAM_PREFIX": stream_prefix,
    }.items():
        monkeypatch.setenv(f"NOETL_EVENT_STORE__{name}", value)
    roles = [begin(role, role) for role in ("relay", "materializer")]
    for role, after in zip(roles, ("shards: ", "materializing"), strict=True):
        assert any(line.startswith("noetl_shards_held") for line in figures(role, after))

    async def streamed(runtime: Runtime) -> None:
        await WritePathChange(runtime.database, runtime.ledger.way).to("stream")
        await record(runtime.ledger, a_run(HOME, 1))
        await runtime.ledger.settled()
        assert sum((await runtime.ledger.head()).positions) == len(a_run(HOME, 1))

    with_runtime(streamed)
    assert rights(owner_url) == {(f"noetl_{role}", f"noetl_{role}") for role in ("relay", "materializer")}
    for role in roles:
        log = role.ended()
        assert "Traceback" not in log
        assert "permission" not in log


@pytest.mark.parametrize("role", ROLES)
def test_a_login_that_lacks_the_right_is_told_so_in_one_line(
    role: str, begin: Begin, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_EVENT_STORE__DISTRIBUTION_BACKEND", "nats-jetstream")
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", nats_url)
    refused = begin("retention", role)
    assert refused.process.wait(PATIENCE) == 1
    assert refused.log.read_text().splitlines() == [
        f'error: the database\'s login may not speak as noetl_{role}: permission denied to set role "noetl_{role}"',
        f"hint: log in as noetl_{role}, or let the owner `GRANT noetl_{role}` to the login",
    ]
