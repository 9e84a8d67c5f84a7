"""Where OpenLineage events go: appended to a file that is flushed to the disk, or posted to a server. Both may see repeats."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import aiohttp

from noetl.errors import InputError, Unavailable

_SECONDS: Final = 30.0
_SHOWN: Final = 200


class Transport(Protocol):
    """Takes events; when `send` returns, the receiver has all of them."""

    @property
    def receiver(self) -> str:
        """A name for who gets the events, by which it is remembered how far it was told."""
        ...

    async def send(self, lines: Sequence[str]) -> None:
        """Hand over events in their order, or raise: then some of them may have arrived."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class FileTransport:
    """Appends to a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def receiver(self) -> str:
        """The file."""
        return f"file:{self._path.absolute()}"

    async def send(self, lines: Sequence[str]) -> None:
        """Write all events and flush them to the disk."""
        await asyncio.to_thread(self._write, "".join(f"{line}\n" for line in lines).encode())

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _write(self, data: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                if file.tell() and not _ends_a_line(self._path):
                    # Whoever wrote before us died in the middle of a line.
                    data = b"\n" + data
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except OSError as problem:
            told = os.strerror(problem.errno or 0)
            raise Unavailable(f"{self._path} cannot be written: {told}", hint="see openlineage.path") from problem


class HttpTransport:
    """Posts each event to a server."""

    def __init__(self, url: str, token: str | None = None, seconds: float = _SECONDS) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._session: aiohttp.ClientSession | None = None

    @property
    def receiver(self) -> str:
        """The server's address, without what may be secret in it."""
        bare = self._url.partition("?")[0]
        scheme, _, rest = bare.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    async def send(self, lines: Sequence[str]) -> None:
        """Post the events one after another, so that their order is kept."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        for line in lines:
            try:
                async with self._session.post(
                    self._url, data=line.encode(), headers=self._headers, allow_redirects=False
                ) as answer:
                    if answer.status >= 300:
                        raise await self._refusal(answer)
                    await answer.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                told = str(problem) or type(problem).__name__
                raise Unavailable(f"{self.receiver} cannot be reached: {told[:_SHOWN]}") from problem

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _refusal(self, answer: aiohttp.ClientResponse) -> Exception:
        said = (await answer.text(errors="replace"))[:_SHOWN]
        told = f"{self.receiver} answered {answer.status}: {said}".rstrip(": ")
        if answer.status >= 500 or answer.status in (408, 425, 429):
            return Unavailable(told)
        return InputError(told, hint="see openlineage.url and openlineage.token")


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
