"""Hints in a key-value bucket of NATS, held in the server's memory and made again whenever it is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import quote

import nats.errors
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from noetl.errors import NoetlError
from noetl.kernel.stream.hints import KEPT_SECONDS, Make
from noetl.kernel.stream.nats.connection import NatsConnection

_SECONDS = 1.0
"""A hint that takes longer is worth less than doing without."""
_QUIET_SECONDS = 5.0
"""How long nothing is asked of a server that did not answer in time; one that is away is tried again sooner."""
_TRIES = 8
Answer = TypeVar("Answer")


class NatsHints:
    """Notes that all processes share."""

    def __init__(
        self,
        connection: NatsConnection,
        bucket: str = "noetl_hints",
        *,
        kept_seconds: float = KEPT_SECONDS,
        replicas: int = 1,
    ) -> None:
        self.misses = 0
        self.errors = 0
        self._connection = connection
        self._config = KeyValueConfig(
            bucket=bucket, ttl=kept_seconds, replicas=replicas, storage=StorageType.MEMORY, history=1
        )
        self._bucket: tuple[int, KeyValue] | None = None
        self._quiet_until = 0.0

    async def get(self, key: str) -> bytes | None:
        """Return a note."""

        async def read(notes: KeyValue) -> bytes | None:
            try:
                return (await notes.get(_key(key))).value
            except KeyNotFoundError:
                return None

        found = await self._tried(read)
        if found is None:
            self.misses += 1
        return found

    async def put(self, key: str, value: bytes) -> bool:
        """Leave a note."""

        async def write(notes: KeyValue) -> bool:
            await notes.put(_key(key), value)
            return True

        return await self._tried(write) or False

    async def change(self, key: str, make: Make) -> bytes | None:
        """Read a note, and write what is made of it if nobody else did in between."""

        async def rewrite(notes: KeyValue) -> bytes | None:
            for _ in range(_TRIES):
                try:
                    entry = await notes.get(_key(key))
                    revision, made = entry.revision or 0, make(entry.value)
                except KeyNotFoundError as missing:
                    revision, made = (missing.entry.revision if missing.entry else 0) or 0, make(None)
                try:
                    await notes.update(_key(key), made, last=revision)
                except KeyWrongLastSequenceError:
                    continue
                return made
            self.errors += 1
            return None

        return await self._tried(rewrite)

    async def forget(self, key: str) -> None:
        """Remove a note."""

        async def remove(notes: KeyValue) -> bool:
            await notes.delete(_key(key))
            return True

        await self._tried(remove)

    async def _tried(self, act: Callable[[KeyValue], Awaitable[Answer]]) -> Answer | None:
        """Do it, once more with a bucket made anew if the bucket is what failed; else count an error."""
        clock = asyncio.get_running_loop().time
        if clock() < self._quiet_until:
            self.errors += 1
            return None
        try:
            async with asyncio.timeout(_SECONDS):
                try:
                    return await act(await self._notes())
                except nats.errors.Error:
                    self._bucket = None
                return await act(await self._notes())
        except (nats.errors.Error, NoetlError, OSError, TimeoutError) as problem:
            if not isinstance(problem, nats.errors.Error):
                self._quiet_until = clock() + (_QUIET_SECONDS if isinstance(problem, TimeoutError) else _SECONDS)
            self._bucket = None
            self.errors += 1
            return None

    async def _notes(self) -> KeyValue:
        making = self._connection.making
        if self._bucket is None or self._bucket[0] != making:
            jetstream = await self._connection.jetstream()
            self._bucket = (self._connection.making, await jetstream.create_key_value(self._config))
        return self._bucket[1]


def _key(text: str) -> str:
    """Write any text in the letters that keys may have; the first one keeps empty text and dots at the ends apart."""
    return "k" + quote(text, safe="/").replace(".", "=2E").replace("~", "=7E").replace("%", "=")
