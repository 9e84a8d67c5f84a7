"""Heads in a file: one line of JSON each, only ever added to. Copies of it on another machine are what binds this one."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from io import FileIO
from pathlib import Path
from typing import Final

from noetl.errors import Unavailable
from noetl.ledger.chain.heads import Head, read_heads

_TAIL: Final = 4096
"""Bytes in which the last whole line ends: a head has some 500."""


class HeadFile:
    """The published heads of one ledger."""

    def __init__(self, directory: Path, ledger: str) -> None:
        self.path = directory / f"{ledger}.jsonl"

    async def publish(self, head: Head) -> None:
        """Add a head; it is on disk when this returns."""
        await asyncio.to_thread(self._add, head.line().encode() + b"\n")

    def heads(self) -> list[Head]:
        """Return all heads, oldest first; none if there is no file."""
        try:
            return read_heads(self.path.read_text())
        except FileNotFoundError:
            return []

    def newest(self) -> dict[int, Head]:
        """Return the largest head of each shard."""
        return {head.shard: head for head in sorted(self.heads(), key=lambda head: head.size)}

    def _add(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _add_whole(file, line)
        except OSError as problem:
            raise Unavailable(f"a signed head cannot be written to {self.path}: {problem.strerror}") from problem


def _add_whole(file: FileIO, line: bytes) -> None:
    """Add a line or nothing. A disk that fills up, or a machine that goes down, may have left a part of one before."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    tail = file.read()
    whole = size - len(tail) + tail.rfind(b"\n") + 1
    file.truncate(whole)
    file.seek(whole)
    if file.write(line) != len(line):
        file.truncate(whole)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())
