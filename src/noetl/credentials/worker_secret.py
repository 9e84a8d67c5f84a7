"""What a server without tokens and the workers of its machine share: a file in the key directory, readable by its owner alone."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from noetl.credentials.secret import Secret
from noetl.errors import ConfigError, Denied

FILE = "worker.secret"
_BYTES = 32


def make_worker_secret(directory: Path) -> Secret:
    """Return the shared secret, made now if there is none yet. For servers."""
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
        return _read(path)
    except OSError as problem:
        raise ConfigError(
            f"the secret that workers of this machine share cannot be kept in {path}: {problem.strerror}",
            hint="make the directory writable, or let the server ask for tokens always (`server.require_tokens: true`)",
        ) from None


def read_worker_secret(directory: Path) -> Secret:
    """Return the shared secret of a server on this machine. For workers."""
    path = directory / FILE
    try:
        return _read(path)
    except OSError as problem:
        raise Denied(
            f"a worker without a token is given secrets only by a server of its own home directory, and {path} cannot"
            f" be read: {problem.strerror}",
            hint="start the worker with the server's home directory, or with a token of the role worker",
        ) from None


def _make(path: Path) -> None:
    """Make the file whole or not at all; of two servers that start together, one makes it."""
    if path.exists():
        return
    draft = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> Secret:
    return Secret(path.read_text().strip())
