"""A pytest plugin: one real PostgreSQL server per test run, and a fresh migrated database for every test that asks.

All workers of a run share the server and one migrated template. Its data live for the run alone, so it writes without
fsync and into memory where there is room; a test that is about crashes starts a server of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.runtime.file_lock import exclusive, is_free, shared
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer

TEMPLATE = "noetl_template"
_DIRECTORY: pytest.StashKey[Path] = pytest.StashKey()
_HELD: pytest.StashKey[int] = pytest.StashKey()
_WORKER_INPUT = "noetl_postgres"
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it
_ROOM_BYTES = 2 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Make the run's directory; xdist's workers are told its name by the process that outlives them."""
    given = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
    if given is not None:
        config.stash[_DIRECTORY] = Path(given)
        return
    _remove_stale()
    made = Path(tempfile.mkdtemp(prefix="noetl-new-", dir=quick_place()))
    # Run by root, the server has another account, which must pass through to its data.
    made.chmod(0o755)
    config.stash[_HELD] = shared(made / "run.lock")
    # Renamed only now: a directory of this name whose lock is free belongs to a run that was killed.
    config.stash[_DIRECTORY] = made.rename(made.with_name(made.name.replace("-new-", "-tests-")))


def quick_place() -> Path:
    """Return where data of databases go: each is hundreds of small files, which memory makes and forgets far sooner."""
    try:
        if shutil.disk_usage(_IN_MEMORY).free >= _ROOM_BYTES and os.access(_IN_MEMORY, os.W_OK | os.X_OK):
            return _IN_MEMORY
    except OSError:
        pass
    return Path(tempfile.gettempdir())


def _remove_stale() -> None:
    """Remove what runs that were killed left behind, a running server above all."""
    for place in {Path(tempfile.gettempdir()), _IN_MEMORY}:
        for directory in place.glob("noetl-tests-*"):
            lock = directory / "run.lock"
            with suppress(FileNotFoundError):  # another run removes it, too
                if directory.stat().st_uid == os.geteuid() and lock.exists() and is_free(lock):
                    _remove(directory)


def _remove(directory: Path) -> None:
    EmbeddedServer(directory / "home").destroy()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the run's directory is."""
    node.workerinput[_WORKER_INPUT] = str(node.config.stash[_DIRECTORY])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the server with its data once no worker can need it."""
    held = config.stash.get(_HELD, None)
    if held is not None:
        _remove(config.stash[_DIRECTORY])
        os.close(held)


class FreshDatabases:
    """Makes databases from the template, the next one while a test still runs, and drops those that are done with."""

    def __init__(self, server: EmbeddedServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._made = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="noetl-test-databases")
        self._admin = self._thread.submit(_admin, server).result()
        self._next = self._thread.submit(self._make)
        self._drops: list[Future[None]] = []

    def take(self) -> str:
        """Return the name of a fresh database."""
        name = self._next.result()
        self._next = self._thread.submit(self._make)
        return name

    def take_empty(self) -> str:
        """Return the name of a database without the schema."""
        return self._thread.submit(self._make, "template1").result()

    def drop(self, name: str) -> None:
        """Drop a database in the background; a failure shows when all is closed."""
        self._drops.append(self._thread.submit(self._drop, name))

    def url(self, name: str, user: str = "noetl_owner") -> str:
        """Return the URL of a database on this server."""
        return self._server.url(user, name)

    def close(self) -> None:
        """Wait for what is under way."""
        self._next.result()
        self._thread.shutdown()
        self._admin.close()
        for done in self._drops:
            done.result()

    def _make(self, template: str = TEMPLATE) -> str:
        self._made += 1
        name = f"{self._prefix}_{self._made}"
        # Measured without fsync: copying files takes about half of what copying through the log takes.
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER noetl_owner STRATEGY FILE_COPY".encode())
        return name

    def _drop(self, name: str) -> None:
        self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _admin(server: EmbeddedServer) -> psycopg.Connection[Any]:
    return psycopg.connect(server.url("noetl_admin", "postgres"), autocommit=True)


def _make_template(server: EmbeddedServer) -> None:
    with _admin(server) as admin:
        if admin.execute("SELECT FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone() is not None:
            return
        for setting in ("fsync = off", "full_page_writes = off", "file_copy_method = clone"):
            admin.execute(f"ALTER SYSTEM SET {setting}".encode())
        admin.execute("SELECT pg_reload_conf()")
        # Migrated under another name first: a template that exists is whole.
        admin.execute("DROP DATABASE IF EXISTS noetl_template_new")
        admin.execute("CREATE DATABASE noetl_template_new OWNER noetl_owner")
        migrations.upgrade(server.url("noetl_owner", "noetl_template_new"))
        admin.execute(f"ALTER DATABASE noetl_template_new RENAME TO {TEMPLATE}".encode())


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """The run's server, with the migrated template in it."""
    directory = pytestconfig.stash[_DIRECTORY]
    with EmbeddedServer(directory / "home") as server:
        with exclusive(directory / "template.lock"):
            _make_template(server)
        yield server


@pytest.fixture(scope="session")
def fresh_databases(postgres_server: EmbeddedServer, pytestconfig: pytest.Config) -> Iterator[FreshDatabases]:
    """Where tests get their databases from."""
    worker = getattr(pytestconfig, "workerinput", {}).get("workerid", "test")
    databases = FreshDatabases(postgres_server, str(worker))
    yield databases
    databases.close()


@pytest.fixture
def owner_url(fresh_databases: FreshDatabases) -> Iterator[str]:
    """The owner's URL of a migrated database that only this test uses."""
    name = fresh_databases.take()
    yield fresh_databases.url(name)
    fresh_databases.drop(name)


@pytest.fixture
def empty_url(fresh_databases: FreshDatabases) -> Iterator[str]:
    """The owner's URL of a database that only this test uses and that no migration has touched."""
    name = fresh_databases.take_empty()
    yield fresh_databases.url(name)
    fresh_databases.drop(name)


@pytest.fixture
async def database(owner_url: str) -> AsyncIterator[Database]:
    """Connections to the test's database, each pool logged in as its role; none may be left in use."""
    database = Database(owner_url, as_roles=True)
    yield database
    busy = {role: pool.get_size() - pool.get_idle_size() for role, pool in database._pools.items()}
    await database.close()
    assert not any(busy.values()), f"connections were not given back: {busy}"


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger in the test's database."""
    ledger = PostgresLedger(database)
    yield ledger
    await ledger.close()
