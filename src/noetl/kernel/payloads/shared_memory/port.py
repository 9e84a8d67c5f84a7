"""The promise of a node's shared memory, and the hints that say where each payload lies in it.

A hint is checked before it is followed; a wrong one costs a slower read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from noetl.kernel.payloads.consumers import Origin
from noetl.model.payload_ref import HintedRef, IpcHint, PayloadRef


class NodeMemory(Protocol):
    """Tables that all processes of a node may read, each for a while."""

    def put(self, key: str, data: bytes | memoryview, schema_digest: str, origin: Origin) -> IpcHint | None:
        """Offer a table to the node; None if it was not taken."""
        ...

    def attach(self, key: str, ref: PayloadRef) -> memoryview | None:
        """Return a table's bytes where they lie, whole as long as they are held; None for any doubt."""
        ...

    def hint(self, key: str) -> IpcHint | None:
        """Return where a table lies."""
        ...

    def drop(self, key: str) -> None:
        """Make a table unknown."""
        ...

    def in_use(self) -> int:
        """Return the bytes in use on the whole node."""
        ...

    def sweep(self) -> int:
        """Remove what dead processes left, and return how many regions that was."""
        ...

    def close(self) -> None:
        """Remove every region of this process."""
        ...


class Doubt(Exception):
    """Why a region is not used."""


def check_hint(filed: Filed, ref: PayloadRef, node_id: str) -> None:
    """Hold a hint against what the reference and this node say; Doubt if anything differs."""
    hint = filed.hint
    if hint.node_id != node_id:
        raise Doubt("node")
    if hint.valid_until <= datetime.now(UTC):
        raise Doubt("stale")
    if hint.schema_digest != ref.schema_digest:
        raise Doubt("schema")
    if filed.length != ref.bytes:
        raise Doubt("length")
    if isinstance(ref, HintedRef) and ref.ipc != hint:
        raise Doubt("forged")


class Filed(msgspec.Struct, frozen=True, gc=False):
    """A hint as it is filed on its node, with the length of what it points to."""

    hint: IpcHint
    length: int


class HintBook:
    """Hints as the texts of symbolic links, which appear whole or not at all and are read with one call."""

    def __init__(self, folder: Path, owner: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._owner = owner

    def file(self, key: str, filed: Filed) -> None:
        """Make known where a payload lies."""
        path, text = self._folder / key, msgspec.json.encode(filed).decode()
        try:
            path.symlink_to(text)
        except FileExistsError:
            fresh = self._folder / f"{key}.{self._owner}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(text)
            fresh.replace(path)

    def filed(self, key: str) -> Filed | None:
        """Return what is filed for a payload; ValueError if that is no hint."""
        try:
            text = os.readlink(f"{self._folder}/{key}")  # noqa: PTH115 - a path would take the text for one and tidy it
        except FileNotFoundError:
            return None
        return msgspec.json.decode(text, type=Filed)

    def forget(self, key: str, shm_name: str | None = None) -> None:
        """Remove a hint; with a name, only if it speaks of that region."""
        with suppress(OSError, ValueError):
            found = self.filed(key)
            if found is not None and (shm_name is None or found.hint.shm_name == shm_name):
                (self._folder / key).unlink()

    def sweep(self, dead: set[str]) -> None:
        """Remove hints that speak of dead regions, are over, or are no hints at all."""
        now = datetime.now(UTC)
        for path in list(self._folder.iterdir()):
            with suppress(OSError):
                try:
                    found = self.filed(path.name)
                    gone = found is not None and (found.hint.shm_name in dead or found.hint.valid_until < now)
                except (ValueError, TypeError):
                    gone = True
                if gone:
                    path.unlink()
