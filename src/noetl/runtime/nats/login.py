"""Who logs in at NATS: the login that the settings name, or that of a server of our own, which its home keeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from noetl.api.connections.listening import is_loopback
from noetl.errors import ConfigError
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.runtime.postgres.location import write_private
from noetl.runtime.remote.local_token import may_be_shown
from noetl.runtime.settings.declaration import Settings

USER: Final = "noetl"
_PORT: Final = 4222
FOLDER: Final = "nats"
_FILE: Final = "nats.password"


def made_password(directory: Path) -> str:
    """Return the password of the server whose streams are in `directory`; it is made now if there is none yet."""
    found = _kept(directory)
    if found is None:
        found = os.urandom(24).hex()
        write_private(directory / _FILE, found + "\n")
    return found


def with_login(url: str, password: str) -> str:
    """Return the URL by which a client logs in at a server of our own."""
    return url.replace("nats://", f"nats://{USER}:{password}@", 1)


def nats_connection(settings: Settings) -> NatsConnection:
    """Return a connection to the server that the settings name; nothing is contacted yet."""
    place = settings.event_store.connection
    if place.url is None:
        raise ConfigError("event_store.connection.url is needed by nats-jetstream", hint="such as nats://nats:4222")
    url, directory = place.url.get_secret_value(), settings.runtime.home / FOLDER
    if place.credentials_file is None and "@" not in url and _may_be_ours(url) and _kept(directory) is not None:
        return NatsConnection(url, user=USER, password=lambda: _password_for(url, directory))
    return NatsConnection(url, credentials_file=place.credentials_file)


def is_our_server(settings: Settings) -> bool:
    """Tell whether the settings name a server that keeps its streams in their home."""
    url = settings.event_store.connection.url
    return (
        url is not None and _may_be_ours(url.get_secret_value()) and _kept(settings.runtime.home / FOLDER) is not None
    )


def _password_for(url: str, directory: Path) -> str:
    """Return the password of our own server; none for a port that another account listens on, or nobody yet."""
    parts = urlsplit(url)
    shown = may_be_shown(parts.hostname or "", parts.port or _PORT)
    return (_kept(directory) or "") if shown else ""


def _may_be_ours(url: str) -> bool:
    return url.startswith("nats://") and is_loopback(urlsplit(url).hostname or "")


def _kept(directory: Path) -> str | None:
    try:
        return (directory / _FILE).read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, PermissionError):
        return None
