"""Settings with a NATS server of our own: it is started beside the role that wants it, with its streams in the home.

The streams stay there, so whatever was acknowledged is still known to the next one that starts in the same home.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from noetl.api.connections.listening import is_loopback
from noetl.errors import ConfigError, Unavailable
from noetl.runtime.config import load_settings
from noetl.runtime.config.schema import variable
from noetl.runtime.file_lock import try_exclusive
from noetl.runtime.nats.login import FOLDER, USER, made_password, with_login
from noetl.runtime.nats.server import ANY_PORT, Login, NatsServer, running_nats
from noetl.runtime.settings.declaration import Settings

_STORE: Final = "event_store"
_WAY: Final = variable((_STORE, "write_path"))
_BACKEND: Final = variable((_STORE, "distribution_backend"))
_URL: Final = variable((_STORE, "connection", "url"))
_SYNCS: Final = variable((_STORE, "connection", "sync_interval_always"))
_USUAL_PORT: Final = 4222


@asynccontextmanager
async def open_own_nats(environ: Mapping[str, str]) -> AsyncIterator[tuple[Settings, NatsServer]]:
    """Give the settings of this environment, in any write path, at a server that runs for the time of the block.

    It listens where `connection.url` says, so that other commands find it there too, or on any free port without one.
    """
    # Read once to learn where the server is to be, which no write path may object to, and once with the server in place.
    wanted = load_settings(environ={**environ, _WAY: "ledger", _BACKEND: "postgres"})
    connection = wanted.event_store.connection
    port = ANY_PORT if connection.url is None else _own_port(connection.url.get_secret_value())
    syncs = connection.require_fsync or connection.sync_interval_always
    directory = wanted.runtime.home / FOLDER
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    lock = _held(directory)
    try:
        password = made_password(directory)
        async with running_nats(directory, port=port, sync_always=syncs, login=Login(USER, password)) as server:
            url = with_login(server.url, password)
            told = {_BACKEND: "nats-jetstream", _URL: url, _SYNCS: str(syncs).lower()}
            yield load_settings(environ={**environ, **told}), server
    finally:
        os.close(lock)


def _held(directory: Path) -> int:
    """Hold the streams alone: a second server on them would end the first."""
    if (lock := try_exclusive(directory / "lock")) is None:
        raise Unavailable(
            f"another process runs NATS with the streams in {directory}",
            hint="stop it first, or set NOETL_HOME to a directory of its own",
        )
    return lock


def _own_port(url: str) -> int:
    """Return the port on which a server of our own has to listen; refuse a URL that is somebody else's."""
    try:
        place = urlsplit(url)
        ours, port = place.scheme == "nats" and is_loopback(place.hostname or ""), place.port or _USUAL_PORT
    except ValueError:
        ours, port = False, _USUAL_PORT
    if not ours:
        raise ConfigError(
            "event_store.connection.url names a server elsewhere, and --nats starts one of our own",
            hint="leave out --nats, or remove the url or let it be nats://127.0.0.1:4222",
        )
    return port
