"""Files with a secret of this machine: a path goes in, random text that only the file's owner reads comes out, made once."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from noetl.credentials.secret import Secret

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
