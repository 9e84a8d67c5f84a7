"""Objects as plain files in a directory. A file appears under its key only when its bytes are on the disk."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from obstore.store import LocalStore

from noetl.errors import ConfigError, PayloadMissing, Unavailable
from noetl.kernel.payloads.objects.bucket import Bucket, Found
from noetl.kernel.payloads.objects.sealed_object import BLOCK
from noetl.kernel.payloads.port import StoreTier

_INCOMING = ".incoming"
_STRAY_SECONDS = 3600.0
_READ = 2 << 20


class LocalBucket(Bucket):
    """Lists and deletes through obstore; writes by itself, because obstore leaves them in the page cache, and reads
    by itself, because that is several times as quick."""

    def __init__(self, root: Path, *, tier: StoreTier = "disk", prefix: str = "") -> None:
        root = root.absolute()
        self._root = root
        self._incoming = root / _INCOMING
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(f"payloads cannot be kept in {root}: {problem.strerror}") from problem
        super().__init__(LocalStore(root), tier=tier, base_uri=root.as_uri(), prefix=prefix)
        self._durable_folders: set[Path] = set()
        self._swept = False

    @property
    def spool_directory(self) -> Path | None:
        """The directory for bytes on their way: on the same disk, and never seen as objects."""
        return self._incoming

    async def put(self, key: str, spool: IO[bytes], size: int, *, replace: bool) -> bool:
        """Write a whole object durably; False if it was there already and may not be replaced."""
        try:
            return await asyncio.to_thread(self._write, self._root / self.path(key), spool, replace=replace)
        except OSError as problem:
            raise Unavailable(f"the payload store cannot write {key}: {problem.strerror}") from problem

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes; PayloadMissing if there is none."""
        try:
            with await asyncio.to_thread((self._root / self.path(key)).open, "rb", 0) as file:
                while piece := await asyncio.to_thread(file.read, _READ):
                    yield piece
        except FileNotFoundError as problem:
            self._see_that_it_is_there()
            raise PayloadMissing(f"there is no object {key}", key=key) from problem
        except OSError as problem:
            raise Unavailable(f"the payload store cannot read {key}: {problem.strerror}") from problem

    async def find(self, key: str) -> Found | None:
        """Describe an object without reading it."""
        found = await super().find(key)
        if found is None:
            self._see_that_it_is_there()
        return found

    def _see_that_it_is_there(self) -> None:
        """Tell a directory that is gone, such as one that is not mounted, from one that has no such object."""
        if not self._incoming.is_dir():
            raise Unavailable(f"the payload store's directory {self._root} is gone")

    def _write(self, target: Path, spool: IO[bytes], *, replace: bool) -> bool:
        # Made anew, it would hide what comes back.
        self._see_that_it_is_there()
        self._sweep()
        self._make_folder(target.parent)
        if not replace and target.exists():
            # Another writer was first, and its directory entry may not be on the disk yet.
            _sync(target.parent)
            return False
        incoming = self._incoming / secrets.token_hex(16)
        try:
            _copy(spool, incoming)
            if replace:
                incoming.replace(target)
            else:
                target.hardlink_to(incoming)
        except FileExistsError:
            return False
        finally:
            incoming.unlink(missing_ok=True)
            _sync(target.parent)
        return True

    def _make_folder(self, folder: Path) -> None:
        if folder in self._durable_folders and folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        for above in (folder, *folder.parents):
            _sync(above)
            if above == self._root.parent:
                break
        self._durable_folders.add(folder)

    def _sweep(self) -> None:
        """Remove what killed processes left half-written; living ones are done with a file in far less than an hour."""
        if self._swept:
            return
        oldest = time.time() - _STRAY_SECONDS
        for stray in self._incoming.iterdir():
            try:
                if stray.stat().st_mtime < oldest:
                    stray.unlink(missing_ok=True)
            except FileNotFoundError:
                continue
        self._swept = True


def _copy(spool: IO[bytes], path: Path) -> None:
    with path.open("xb") as file:
        spool.seek(0)
        shutil.copyfileobj(spool, file, BLOCK)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
