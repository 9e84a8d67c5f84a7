"""The token of a server that has no other: a file in the key directory, readable by its owner alone.

It admits where the server cannot see by itself that a caller on its machine is of its own account.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noetl.credentials.owner_file import make_owner_file, others_can_read, read_owner_file
from noetl.credentials.secret import Secret
from noetl.errors import ConfigError

_log = logging.getLogger(__name__)

FILE: Final = "local.token"
PREFIX: Final = "noetl_local_"
"""What it starts with; no other token does."""


@dataclass(frozen=True)
class LocalToken:
    """A token and where it is kept."""

    secret: Secret
    path: Path


def make_local_token(directory: Path) -> LocalToken | None:
    """Return the token of a key directory, made now if there is none yet; None where others can read it. For servers."""
    path = directory.absolute() / FILE
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
        return read_owner_file(directory / FILE)
    except OSError:
        return None
