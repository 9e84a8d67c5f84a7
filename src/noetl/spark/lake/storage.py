"""Where the files of datasets lie, how paths are spelled, and how written files survive a power loss. Reads no rows."""

from __future__ import annotations

import hashlib
import io
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from noetl.errors import ConfigError
from noetl.model.dataset import ALL

if TYPE_CHECKING:
    from obstore.store import ObjectStore
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

_PLAIN = re.compile(r"[A-Za-z0-9._=-]{1,120}")
_CLIENT_OPTIONS: Final = frozenset(
    {"allow_http", "timeout", "connect_timeout", "proxy_url", "allow_invalid_certificates"}
)
_READ_BYTES: Final = 1 << 20
_SCHEMES: Final = frozenset({"file", "s3", "gs", "az"})


@dataclass(frozen=True)
class Lake:
    """The root of all datasets' files: a directory, or an `s3://`, `gs://` or `az://` address with its options.

    `native` says that Spark itself can read and write there; otherwise rows pass through Arrow in the executors.
    """

    root: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    native: bool = True

    def __post_init__(self) -> None:
        scheme = urlsplit(self.root).scheme
        if "://" in self.root and scheme not in _SCHEMES:
            raise ConfigError(
                f"lake.location {self.root!r} has the scheme {scheme!r}: use a directory, s3://, gs:// or az://"
            )

    @property
    def directory(self) -> Path | None:
        """The directory of a lake of files; none for an object store."""
        if "://" not in self.root:
            return Path(self.root).absolute()
        parts = urlsplit(self.root)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    def address(self, path: str) -> str:
        """Return what Spark calls a path of this lake."""
        directory = self.directory
        if directory is not None:
            return str(directory / path)
        parts = urlsplit(self.root)
        prefix = parts.path.strip("/")
        below = f"{prefix}/{path}" if prefix else path
        if parts.scheme == "az":
            account = self.options.get("account_name", "")
            return f"abfss://{parts.netloc}@{account}.dfs.core.windows.net/{below}"
        return f"{'s3a' if parts.scheme == 's3' else parts.scheme}://{parts.netloc}/{below}"

    def opened(self, path: str) -> io.BufferedReader:
        """Open a file for reading at any place."""
        directory = self.directory
        if directory is not None:
            return (directory / path).open("rb")
        import obstore

        return io.BufferedReader(_Remote(obstore.open_reader(self.store(), path)), _READ_BYTES)

    def store(self) -> ObjectStore:
        """Return the object store of this lake, opened once per process."""
        return _opened(self.root, tuple(sorted(self.options.items())))


class _Remote(io.RawIOBase):
    """A file of an object store that behaves like one of this machine."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = memoryview(data)
        return len(data)


def partition_directory(key: str) -> str:
    """Return the directory of a partition, which reads like its key where that makes a plain path."""
    return "/".join(_segment(part) for part in key.split("/")) if key != ALL else ALL


def commit_directory(location: str, key: str, task_id: str, attempt: int, mark: str) -> str:
    """Return the private directory of one attempt at one partition; `mark` tells apart what it writes more than once."""
    return f"{location}{partition_directory(key)}/{commit_name(task_id, attempt, mark)}"


def commit_name(task_id: str, attempt: int, mark: str) -> str:
    """Return the name of an attempt's own directory."""
    return f"commit={task_id}-{attempt}-{mark}"


def fresh_mark() -> str:
    """Return a mark that no other write of the attempt has."""
    return uuid.uuid4().hex[:8]


def remove_sidecars(lake: Lake, paths: Iterable[str]) -> None:
    """Remove what Hadoop keeps beside files of a directory: it refuses a file that the checksums in there do not fit."""
    assert lake.directory is not None
    for path in paths:
        file = lake.directory / path
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _segment(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    readable = re.sub(r"[^A-Za-z0-9._=-]+", "-", unquote(part))[:80]
    return f"{readable}_{hashlib.sha256(part.encode()).hexdigest()[:16]}"


@lru_cache(maxsize=16)
def _opened(root: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    from obstore.store import LocalStore, from_url

    directory = Lake(root).directory
    if directory is not None:
        return LocalStore(prefix=directory, mkdir=True)
    client: dict[str, Any] = {name: _typed(value) for name, value in options if name in _CLIENT_OPTIONS}
    config: dict[str, Any] = {name: value for name, value in options if name not in _CLIENT_OPTIONS}
    return from_url(root, config=config or None, client_options=client or None)  # type: ignore[arg-type]


def _typed(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in ("true", "false") else value


_AT_ONCE: Final = 8


def make_durable(lake: Lake, paths: Sequence[str]) -> None:
    """Flush files and the directories that name them; an object store promises as much by its answer."""
    directory = lake.directory
    if directory is None or not paths:
        return
    files = [directory / path for path in paths]
    with ThreadPoolExecutor(min(_AT_ONCE, len(files))) as pool:
        list(pool.map(_flush, files))
        list(pool.map(_flush, sorted(_above(directory, files))))


def _above(root: Path, files: Iterable[Path]) -> set[Path]:
    """Return every directory from the lake's root down to the files: any of them may be new."""
    found: set[Path] = set()
    for file in files:
        for parent in file.parents:
            if parent in found or parent == root.parent:
                break
            found.add(parent)
    return found


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
