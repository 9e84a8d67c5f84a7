"""Master keys of credentials: an environment variable or key files go in, keys by id come out.

There is no default key: without any, nothing opens. Keys are never printed, and made only when asked for.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from noetl.errors import ConfigError, InputError

KEY_BYTES = 32
VARIABLE = "NOETL_SECRET_KEY"
_ID_CONTEXT = "noetl master key id, version 1"
_FIRST = "000001.key"
_MAKE = "make one with `openssl rand -base64 32`"


@dataclass(frozen=True)
class Key:
    """A master key. Its id is derived from it, so an id never means two keys."""

    secret: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """The name rows give the key they were sealed with; says nothing about the key."""
        return blake3(self.secret, derive_key_context=_ID_CONTEXT).hexdigest(length=8)


class KeyRing:
    """The master keys a process has. The newest seals; all of them open.

    `NOETL_SECRET_KEY` holds one key or several separated by commas, the newest first. Key files stand in a directory,
    each with one key, the newest last by name. Where both are given, the variable's first key seals. Files are read
    again on each use, so that a key added or removed by one process is so for all.
    """

    def __init__(self, given: Sequence[bytes] = (), directory: Path | None = None) -> None:
        self._given = tuple(Key(secret) for secret in given)
        self._directory = directory

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(key.key_id for key in self.all())})"

    @classmethod
    def load(cls, directory: Path, environ: Mapping[str, str], *, create: bool = False) -> KeyRing:
        """Read the keys; without any, make the first key file if `create` says so, and refuse otherwise."""
        given = [_decoded(text, VARIABLE) for text in environ.get(VARIABLE, "").split(",") if text.strip()]
        ring = cls(given, directory)
        if not ring.all():
            if not create:
                raise _none(directory)
            with suppress(FileExistsError):
                ring._make(_FIRST)
        return ring

    def all(self) -> tuple[Key, ...]:
        """All keys, the newest first."""
        return (*self._given, *(key for key, _ in reversed(self._files())))

    def newest(self) -> Key:
        """Return the key that seals."""
        keys = self.all()
        if not keys:
            raise _none(self._directory)
        return keys[0]

    def key(self, key_id: str) -> Key:
        """Return a key by its id."""
        for key in self.all():
            if key.key_id == key_id:
                return key
        raise ConfigError(
            f"master key {key_id} is needed and not among the keys of this process",
            hint=f"add it to {VARIABLE} after the first key, or put its file back into the key directory",
        )

    def add(self) -> Key:
        """Make a new key file, which becomes the newest key."""
        if self._given or self._directory is None:
            raise InputError(
                f"the keys come from {VARIABLE}, so no key file is made",
                hint=f"put a new key in front of the old one, {VARIABLE}=NEW,OLD; {_MAKE}",
            )
        while True:
            try:
                return self._make(self._next_name())
            except FileExistsError:
                continue

    def remove(self, key_id: str) -> bool:
        """Delete the file of a key and say whether there was one; keys of the variable are the operator's."""
        found = [path for key, path in self._files() if key.key_id == key_id]
        for path in found:
            path.unlink(missing_ok=True)
        return bool(found)

    def _make(self, name: str) -> Key:
        assert self._directory is not None
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = Key(secrets.token_bytes(KEY_BYTES))
        fresh = self._directory / f".{secrets.token_hex(8)}"
        try:
            _write(fresh, base64.b64encode(key.secret) + b"\n")
            # A link appears whole or not at all, and of racing makers one wins.
            (self._directory / name).hardlink_to(fresh)
        finally:
            fresh.unlink(missing_ok=True)
        return key

    def _files(self) -> list[tuple[Key, Path]]:
        if self._directory is None or not self._directory.is_dir():
            return []
        found = []
        for path in sorted(self._directory.glob("[!.]*.key")):
            try:
                mode, text = path.stat().st_mode, path.read_text(encoding="ascii", errors="replace")
            except FileNotFoundError:
                continue
            except PermissionError:
                raise ConfigError(f"the key file {path} may not be read by this process") from None
            if mode & 0o007:
                raise ConfigError(
                    f"the key file {path} is open to every user of this machine",
                    hint=f"chmod o-rwx {path} (a mounted Kubernetes secret: defaultMode: 0440)",
                )
            found.append((Key(_decoded(text, f"the key file {path}")), path))
        return found

    def _next_name(self) -> str:
        assert self._directory is not None
        numbers = [int(path.stem) for path in self._directory.glob("*.key") if path.stem.isdecimal()]
        return f"{max(numbers, default=0) + 1:06d}.key"


def _none(directory: Path | None) -> ConfigError:
    place = "" if directory is None else f", and {directory} holds no key file"
    return ConfigError(
        f"there is no master key for credentials: {VARIABLE} is not set{place}",
        hint=f"set {VARIABLE} to {KEY_BYTES} random bytes in base64; {_MAKE}",
    )


def _decoded(text: str, place: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES or len(set(key)) == 1:
        # The chain is cut, because what could not be decoded may be most of a key.
        raise ConfigError(f"{place} is not a key of {KEY_BYTES} random bytes in base64", hint=_MAKE) from None
    return key


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
