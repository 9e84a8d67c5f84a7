"""Heads in a file: one line of JSON each, only ever added to. Copies of it on another machine are what binds this one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from noetl.errors import Unavailable
from noetl.ledger.chain.heads import Head, read_heads


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
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise Unavailable(f"a signed head cannot be written to {self.path}: {problem.strerror}") from problem
