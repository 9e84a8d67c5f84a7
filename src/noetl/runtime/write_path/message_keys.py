"""The keys of messages: the master keys of credentials go in, a key for MACs is derived from each.

All processes of one installation have the same master keys already; a process of another one, or a task, has none.
"""

from __future__ import annotations

import hmac
import os
import time
from typing import Final

from noetl.errors import ConfigError
from noetl.kernel.stream.signed import MacKey
from noetl.runtime.nats.login import is_our_server
from noetl.runtime.settings.declaration import Settings
from noetl.services.credentials.keyring import KeyRing

_INFO: Final = b"noetl messages of writes, version 1"
_LOOK_SECONDS: Final = 1.0
"""How long the key files are not read again: messages come by the thousand."""


class StreamKeys:
    """The MAC keys of this process, read at first use and again when a key is asked for that is not known."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ring: KeyRing | None = None
        self._found: list[MacKey] = []
        self._looked = -_LOOK_SECONDS

    def signing(self) -> MacKey:
        """Return the newest key."""
        self._look()
        if not self._found:
            raise ConfigError(
                "messages of the write path stream are signed with the master key, and this process has none",
                hint="give every process of this installation the same NOETL_SECRET_KEY, or the same key files",
            )
        return self._found[0]

    def named(self, name: str) -> MacKey | None:
        """Return a key by its name."""
        for _ in range(2):
            for key in self._found:
                if hmac.compare_digest(key.name.encode(), name.encode()):
                    return key
            self._look()
        return None

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        try:
            self._ring = self._ring or _ring(self._settings)
        except ConfigError:
            return  # a process without a key refuses what it reads, and says so when it has to sign
        self._found = [MacKey(key.key_id, _derived(key.secret)) for key in self._ring.all()]


def _ring(settings: Settings) -> KeyRing:
    # A database or a NATS server in the home is used by processes of that home alone, which find the key there as well.
    create = settings.database.url is None or is_our_server(settings)
    return KeyRing.load(settings.key_directory / "credentials", os.environ, create=create)


def _derived(master: bytes) -> bytes:
    # HKDF-Expand of RFC 5869 for one block; the master key is random already, so there is nothing to extract.
    return hmac.digest(master, _INFO + b"\x01", "sha256")
