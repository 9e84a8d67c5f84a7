"""Finds the token for a server of this machine: its address goes in, the token of the project comes out if it is safe to show."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from noetl.api.connections.listening import is_loopback
from noetl.api.connections.peer import TABLES, listening_users
from noetl.services.credentials.local_secrets import find_local_token
from noetl.services.credentials.secret import Secret


def local_token_for(url: str, key_directory: Path, tables: Path = TABLES) -> Secret | None:
    """Return the token in a key directory for a server on the loopback; None for any other.

    Any account can listen on a port that is free, and would be shown the token. Where the owner of the port can be seen, it is
    shown to our own account and root alone; such a server sees by itself whose process asks, so nothing is lost.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        return None
    if parts.scheme != "http" or not is_loopback(host):
        return None
    return find_local_token(key_directory) if may_be_shown(host, port, tables) else None


def may_be_shown(host: str, port: int, tables: Path = TABLES) -> bool:
    """Tell whether our own account or root listens on a port of this machine, or nobody can tell who does."""
    if not (tables / "tcp").exists():
        return True
    users = set().union(*(listening_users((one, port), tables) for one in _addresses(host)))
    return bool(users) and users <= {0, os.geteuid()}


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(address[0]) for *_, address in found}
