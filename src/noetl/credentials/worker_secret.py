"""What a server without tokens and the workers of its machine share: a file in the key directory, readable by its owner alone."""

from __future__ import annotations

from pathlib import Path

from noetl.credentials.owner_file import make_owner_file, read_owner_file
from noetl.credentials.secret import Secret
from noetl.errors import ConfigError, Denied

FILE = "worker.secret"


def make_worker_secret(directory: Path) -> Secret:
    """Return the shared secret, made now if there is none yet. For servers."""
    path = directory / FILE
    try:
        return make_owner_file(path)
    except OSError as problem:
        raise ConfigError(
            f"the secret that workers of this machine share cannot be kept in {path}: {problem.strerror}",
            hint="make the directory writable, or let the server ask for tokens always (`server.require_tokens: true`)",
        ) from None


def read_worker_secret(directory: Path) -> Secret:
    """Return the shared secret of a server on this machine. For workers."""
    path = directory / FILE
    try:
        return read_owner_file(path)
    except OSError as problem:
        raise Denied(
            f"a worker without a token is given secrets only by a server of its own home directory, and {path} cannot"
            f" be read: {problem.strerror}",
            hint="start the worker with the server's home directory, or with a token of the role worker",
        ) from None
