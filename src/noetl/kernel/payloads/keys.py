"""One key per tenant, for payloads encrypted before they leave the process. A destroyed key never comes back."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Protocol

from noetl.errors import Corrupt, Erased, InputError
from noetl.model.stream import Scope

KEY_BYTES = 32


class TenantKeys(Protocol):
    """The keys of all tenants."""

    def key(self, tenant_id: str) -> bytes:
        """Return the tenant's 32-byte key, made on first use; Erased if it was destroyed."""
        ...

    def destroy(self, tenant_id: str) -> None:
        """Destroy the tenant's key for good, which makes everything encrypted under it unreadable; idempotent."""
        ...


class MemoryTenantKeys:
    """Keys that live as long as the process."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}
        self._erased: set[str] = set()

    def key(self, tenant_id: str) -> bytes:
        """Return the tenant's key, made on first use; Erased if it was destroyed."""
        if tenant_id in self._erased:
            raise _erased(tenant_id)
        return self._keys.setdefault(tenant_id, secrets.token_bytes(KEY_BYTES))

    def destroy(self, tenant_id: str) -> None:
        """Forget the tenant's key for good."""
        self._erased.add(tenant_id)
        self._keys.pop(tenant_id, None)


class FileTenantKeys:
    """Keys as files that only their owner may read; a destroyed key leaves a tombstone, so it is never made again.

    Keys are read on each use, never remembered, so a key destroyed by one process is gone for all. Destruction
    overwrites the file first; on copy-on-write or journalled storage, backups and flash cells may keep older blocks,
    so the directory belongs on a volume that is not backed up together with the payloads.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def key(self, tenant_id: str) -> bytes:
        """Return the tenant's key, made on first use; Erased if it was destroyed."""
        path, tombstone = self._paths(tenant_id)
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            found = self._create(path, tombstone, tenant_id)
        # The tombstone is looked for last: it is written before the key is overwritten, so a key read while it is
        # being destroyed is never taken for the real one.
        if tombstone.exists():
            raise _erased(tenant_id)
        if len(found) != KEY_BYTES:
            raise Corrupt(f"the key file of tenant {tenant_id!r} is damaged; restore {path.name} from its backup")
        return found

    def destroy(self, tenant_id: str) -> None:
        """Mark the tenant as erased, then overwrite and remove its key."""
        path, tombstone = self._paths(tenant_id)
        _write_new(tombstone, b"", exclusive=False)
        _sync_directory(self._directory)
        if path.exists():
            with path.open("r+b") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            path.unlink(missing_ok=True)
        _sync_directory(self._directory)

    def _create(self, path: Path, tombstone: Path, tenant_id: str) -> bytes:
        if tombstone.exists():
            raise _erased(tenant_id)
        fresh = self._directory / f".{secrets.token_hex(8)}"
        try:
            _write_new(fresh, secrets.token_bytes(KEY_BYTES), exclusive=True)
            # A link appears whole or not at all, and of racing makers one wins.
            path.hardlink_to(fresh)
        except FileExistsError:
            pass
        finally:
            fresh.unlink(missing_ok=True)
        if tombstone.exists():
            path.unlink(missing_ok=True)
            raise _erased(tenant_id)
        _sync_directory(self._directory)
        return path.read_bytes()

    def _paths(self, tenant_id: str) -> tuple[Path, Path]:
        problems = Scope(tenant_id, "any").problems()
        if problems:
            raise InputError("; ".join(problems))
        return self._directory / f"{tenant_id}.key", self._directory / f"{tenant_id}.erased"


def _erased(tenant_id: str) -> Erased:
    return Erased(f"the key of tenant {tenant_id!r} was destroyed, so its data can no longer be read or added to")


def _write_new(path: Path, data: bytes, *, exclusive: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
