"""Secrets of this machine: from files under one directory, and from variables of the process that are allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from noetl.errors import Denied, InputError, NotFound
from noetl.services.credentials.providers.port import FetchOptions, fields_of

LARGEST = 1 << 20
_BASE = Path("/var/run/secrets")
KUBERNETES = _BASE / "noetl"
"""Where secrets for playbooks are mounted unless the settings say otherwise."""


class FileSecrets:
    """A file is a secret; a directory is a secret with a field for each of its files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a file or directory."""
        return await asyncio.to_thread(self._read, name)

    def _read(self, name: str) -> dict[str, str]:
        root = self._directory.resolve()
        # Links are followed first: a mounted secret is one, within its mount.
        path = (root / name).resolve()
        if path == root or not path.is_relative_to(root):
            raise Denied(f"the secret file {name!r} is outside of the directory of secrets")
        try:
            if path.is_dir():
                files = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
                found = {one.name: _text(one, name, root) for one in files}
            else:
                found = fields_of(_text(path, name, root))
        except (FileNotFoundError, NotADirectoryError):
            found = {}
        except PermissionError:
            raise Denied(f"the secret file {name!r} may not be read by this process") from None
        if not found:
            raise NotFound(f"there is no secret file {name!r} in the directory of secrets")
        return found


def _text(path: Path, name: str, root: Path) -> str:
    if not path.resolve().is_relative_to(root):
        raise Denied(f"the secret file {name!r} is outside of the directory of secrets")
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InputError(f"the secret file {name!r} is not UTF-8 text") from None
    if len(data) > LARGEST:
        raise InputError(f"the secret file {name!r} is larger than {LARGEST} bytes")
    # The newline that editors put at the end belongs to no password.
    return text.removesuffix("\n").removesuffix("\r")


ALLOWED = ("SECRET_*",)


class EnvironmentSecrets:
    """Reads environment variables whose names match a pattern; anyone who may write a playbook may read these."""

    def __init__(self, environ: Mapping[str, str], allowed: Sequence[str] = ALLOWED) -> None:
        self._environ = environ
        self._allowed = tuple(allowed)

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a variable."""
        if name.startswith("NOETL_") or not any(fnmatchcase(name, pattern) for pattern in self._allowed):
            raise Denied(
                f"the environment variable {name!r} is not one that playbooks may read",
                hint=f"name it like {' or '.join(self._allowed)}",
            )
        text = self._environ.get(name)
        if not text:
            raise NotFound(f"the environment variable {name!r} is not set where this runs")
        return fields_of(text)
