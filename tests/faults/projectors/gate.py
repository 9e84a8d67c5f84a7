"""A way to PostgreSQL that can be shut: while it is, connections break and new ones are refused."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"


class Gate:
    """Passes bytes on between a loopback port and the socket of a server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        where = parse_qs(parts.query)
        self._socket = f"{where['host'][0]}/.s.PGSQL.{where['port'][0]}"
        self._user, self._database, self._proof = parts.username, parts.path, where["passfile"][0]
        self._port = 0
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The same database, through the gate."""
        return f"postgresql://{self._user}@{HOST}:{self._port}{self._database}?sslmode=disable&passfile={self._proof}"

    async def open(self) -> None:
        """Let connections in, always at the same port."""
        self._server = await asyncio.start_server(self._pass, HOST, self._port, reuse_address=True)
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Break every connection, and refuse new ones."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._passing):
            writer.transport.abort()
        self._server = None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inward, outward = await asyncio.open_unix_connection(self._socket)
        ends = {writer, outward}
        self._passing |= ends
        try:
            await asyncio.gather(_flow(reader, outward), _flow(inward, writer))
        finally:
            self._passing -= ends


async def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while read := await reader.read(65_536):
            writer.write(read)
            await writer.drain()
    writer.close()
