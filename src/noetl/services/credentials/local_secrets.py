"""Secrets of this machine in files that only their owner reads: the local token, and what workers and server share."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noetl.errors import ConfigError, Denied
from noetl.services.credentials.secret import Secret

_BYTES: Final = 32


def make_owner_file(path: Path, prefix: str = "") -> Secret:
    """Return the secret of a file, made now if there is none yet; `OSError` where it cannot be kept."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _make(path, prefix + secrets.token_urlsafe(_BYTES))
    return read_owner_file(path)


def read_owner_file(path: Path) -> Secret:
    """Return the secret of a file; `OSError` where it is not there or not for us."""
    return Secret(path.read_text().strip())


def others_can_read(path: Path) -> bool:
    """Tell whether accounts besides ours and root's can read a file, as on a file system that keeps no modes."""
    found = path.stat()
    return bool(found.st_mode & 0o077) or found.st_uid not in (0, os.geteuid())


def _make(path: Path, text: str) -> None:
    """Make the file whole or not at all; of two servers that start together, one makes it."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


_log = logging.getLogger(__name__)

SERVER_FILE: Final = "local.token"
PREFIX: Final = "noetl_local_"
"""What it starts with; no other token does."""


@dataclass(frozen=True)
class LocalToken:
    """A token and where it is kept."""

    secret: Secret
    path: Path


def make_local_token(directory: Path) -> LocalToken | None:
    """Return the token of a key directory, made now if there is none yet; None where others can read it. For servers."""
    path = directory.absolute() / SERVER_FILE
    try:
        secret = make_owner_file(path, PREFIX)
        shared = others_can_read(path)
    except OSError as problem:
        raise ConfigError(
            f"the token of this machine cannot be kept in {path}: {problem.strerror}",
            hint="make the directory writable, or let the server ask for tokens always (`server.require_tokens: true`)",
        ) from None
    if shared:
        _log.warning("others can read %s, so it admits nobody; remove it and start again", path)
        return None
    return LocalToken(secret, path)


def find_local_token(directory: Path) -> Secret | None:
    """Return the token of a key directory, if there is one that this account can read. For clients."""
    try:
        return read_owner_file(directory / SERVER_FILE)
    except OSError:
        return None


WORKERS_FILE = "worker.secret"


def make_worker_secret(directory: Path) -> Secret:
    """Return the shared secret, made now if there is none yet. For servers."""
    path = directory / WORKERS_FILE
    try:
        return make_owner_file(path)
    except OSError as problem:
        raise ConfigError(
            f"the secret that workers of this machine share cannot be kept in {path}: {problem.strerror}",
            hint="make the directory writable, or let the server ask for tokens always (`server.require_tokens: true`)",
        ) from None


def read_worker_secret(directory: Path) -> Secret:
    """Return the shared secret of a server on this machine. For workers."""
    path = directory / WORKERS_FILE
    try:
        return read_owner_file(path)
    except OSError as problem:
        raise Denied(
            f"a worker without a token is given secrets only by a server of its own home directory, and {path} cannot"
            f" be read: {problem.strerror}",
            hint="start the worker with the server's home directory, or with a token of the role worker",
        ) from None
