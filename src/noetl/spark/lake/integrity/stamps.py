"""What a store says of a file without reading it: a path goes in, its size and what changes with its bytes come out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from noetl.spark.lake.integrity.read_errors import reading, refuse_unmounted
from noetl.spark.lake.storage import Lake

_AT_ONCE: Final = 32
"""Requests to an object store at a time; a directory answers at once."""


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """A file as its store describes it."""

    bytes: int
    stamp: str
    """What a manifest keeps: the modification time of a local file, the version or ETag of an object."""
    identity: str
    """What a proof is kept by. Of a local file also its inode and the time of its last change, which nobody sets back."""


def stat(lake: Lake, path: str) -> Stat:
    """Describe a file; FileNotFoundError if there is none."""
    directory = lake.directory
    if directory is not None:
        return _local(f"{directory}/{path}")
    import obstore

    meta = obstore.head(lake.store(), path)
    stamp = _object_stamp(meta.get("version"), meta.get("e_tag"), meta["last_modified"].isoformat())
    return Stat(bytes=meta["size"], stamp=stamp, identity=stamp)


def stats(lake: Lake, paths: Sequence[str]) -> list[Stat | None]:
    """Describe files, in the order of their paths; none where there is no such file, and Unavailable where no lake answers."""
    directory = lake.directory
    if directory is not None:
        # Spelled once, since a query looks at every file it reads.
        root = str(directory)
        found = [_or_none(_local, f"{root}/{path}", lake) for path in paths]
        if None in found:
            refuse_unmounted(lake)
        return found
    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(paths)))) as pool:
        return list(pool.map(lambda path: _or_none(partial(stat, lake), path, lake), paths))


def stamp_of(lake: Lake, path: str) -> str:
    """Return what a manifest keeps of a file that was just written."""
    return stat(lake, path).stamp


def _local(path: str) -> Stat:
    found = os.stat(path)  # noqa: PTH116 - no Path is made for each of many files
    stamp = f"mtime:{found.st_mtime_ns}"
    return Stat(bytes=found.st_size, stamp=stamp, identity=f"{stamp}:{found.st_ctime_ns}:{found.st_ino}")


def _or_none(describe: Callable[[str], Stat], path: str, lake: Lake) -> Stat | None:
    with reading(path, lake):
        try:
            return describe(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _object_stamp(version: str | None, etag: str | None, modified: str) -> str:
    if version:
        return f"version:{version}"
    return f"etag:{etag}" if etag else f"modified:{modified}"
