"""Keys and bytes over obstore, for any of its backends. Its exceptions end here; what the bytes mean is not known here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import obstore
from obstore import exceptions

from noetl.errors import PayloadMissing, Unavailable, Unsupported
from noetl.kernel.payloads.port import StoreTier

if TYPE_CHECKING:
    from obstore.store import ObjectStore

ONE_PUT = 8 << 20
"""Up to this size an object is sent in one conditional request; above, in parts of at least this size."""

_MOST_PARTS = 9_000
_READ = 4 << 20


class Found(NamedTuple):
    """What a backend tells of a key."""

    key: str
    size: int
    modified: datetime


class Bucket:
    """A flat space of keys in one backend, all under one prefix."""

    def __init__(self, backend: ObjectStore, *, tier: StoreTier, base_uri: str, prefix: str = "") -> None:
        self.backend = backend
        self.tier: StoreTier = tier
        self._base_uri = base_uri.rstrip("/")
        self._prefix = prefix.strip("/")

    @property
    def spool_directory(self) -> Path | None:
        """Where bytes on their way here should be spooled; None means the system's place for temporary files."""
        return None

    def path(self, key: str) -> str:
        """Return the backend's path of a key."""
        return f"{self._prefix}/{key}" if self._prefix else key

    def uri(self, key: str) -> str:
        """Return the address of a key in the backend's own words."""
        return f"{self._base_uri}/{self.path(key)}"

    async def put(self, key: str, spool: IO[bytes], size: int, *, replace: bool) -> bool:
        """Write a whole object durably; False if it was there already and may not be replaced.

        No reader ever sees a part of it. Above `ONE_PUT` backends have no condition to offer, so of two racing writers
        both may write; what they write is the same content.
        """
        spool.seek(0)
        with _translated(key):
            if size <= ONE_PUT:
                try:
                    await obstore.put_async(
                        self.backend,
                        self.path(key),
                        spool.read(),
                        mode="overwrite" if replace else "create",
                        use_multipart=False,
                    )
                except exceptions.AlreadyExistsError:
                    return False
                return True
            if not replace and await self.find(key) is not None:
                return False
            part = max(ONE_PUT, -(-size // _MOST_PARTS))
            await obstore.put_async(
                self.backend,
                self.path(key),
                _parts(spool, part),
                use_multipart=True,
                chunk_size=part,
                max_concurrency=2,
            )
            return True

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes; PayloadMissing if there is none."""
        with _translated(key):
            found = await obstore.get_async(self.backend, self.path(key))
            async for piece in found.stream(min_chunk_size=_READ):
                yield bytes(piece)

    async def find(self, key: str) -> Found | None:
        """Describe an object without reading it."""
        try:
            with _translated(key):
                meta = await obstore.head_async(self.backend, self.path(key))
        except PayloadMissing:
            return None
        return Found(key, meta["size"], meta["last_modified"])

    async def list(self, folder: str) -> AsyncIterator[Found]:
        """Yield every object directly or deeper in a folder."""
        cut = len(self._prefix) + 1 if self._prefix else 0
        with _translated(folder):
            async for chunk in obstore.list(self.backend, self.path(folder), chunk_size=1000):
                for meta in chunk:
                    yield Found(meta["path"][cut:], meta["size"], meta["last_modified"])

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is fine."""
        try:
            with _translated(key):
                await obstore.delete_async(self.backend, self.path(key))
        except PayloadMissing:
            return


def _parts(spool: IO[bytes], size: int) -> Iterator[bytes]:
    while part := spool.read(size):
        yield part


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as problem:
        raise PayloadMissing(f"there is no object {key}", key=key) from problem
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as problem:
        # Credentials expire and are renewed, clocks are set right and policies mended: work waits for it, and says so.
        raise Unavailable(
            f"the payload store refuses these credentials for {key}", hint="check its access key, policy and clock"
        ) from problem
    except exceptions.NotSupportedError as problem:
        raise Unsupported(f"the payload store cannot do this: {_first_line(problem)}") from problem
    except (exceptions.BaseError, OSError) as problem:
        raise Unavailable(f"the payload store does not answer for {key}: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
