"""One connection to NATS for all that a process does there: made at first use, kept for ever, errors translated once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from noetl.errors import Denied, NoetlError, NotFound, Unavailable, Unsupported

_CONNECT_SECONDS = 5
_CLOSE_SECONDS = 5
_BETWEEN_TRIES_SECONDS = 1
_PING_SECONDS = 20
_log = logging.getLogger(__name__)


class NatsConnection:
    """A client that connects again by itself, for ever; while it is away, whoever asks for it gets `Unavailable`."""

    def __init__(
        self,
        url: str,
        *,
        credentials_file: Path | None = None,
        user: str | None = None,
        password: Callable[[], str] | None = None,
        request_seconds: float = 5.0,
    ) -> None:
        """Take a server; `password` is asked for whenever a connection is made, also one that is made again."""
        self.url = url
        self._user = user
        self._password = password
        self.request_seconds = request_seconds
        self.making = 0
        """Counts the connections made so far: what was asked of an earlier one may never be answered."""
        self.breaks = 0
        """Counts the connections lost so far, from when that is known: before another is made."""
        self._credentials_file = credentials_file
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._changed = asyncio.Event()

    async def client(self) -> Client:
        """Return the client, connected."""
        if self._client is None or self._client.is_closed:
            async with self._connecting:
                if self._client is None or self._client.is_closed:
                    self._client = await self._connect()
                    self.making += 1
        if not self._client.is_connected:
            raise self.away("the connection was lost and is being made again")
        return self._client

    async def jetstream(self) -> JetStreamContext:
        """Return what manages streams over the client."""
        return (await self.client()).jetstream(timeout=self.request_seconds)

    def away(self, why: str) -> Unavailable:
        """Return the error for a server that does not answer."""
        return Unavailable(
            f"NATS at {self.place} does not answer: {why}", hint="see that the server runs and has JetStream enabled"
        )

    @property
    def place(self) -> str:
        """Host and port, without what logs in there."""
        return ",".join(urlsplit(part).netloc.rpartition("@")[2] or "?" for part in self.url.split(","))

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the client raises into NoETL's errors."""
        try:
            yield
        except (NoetlError, asyncio.CancelledError):
            raise
        except nats.js.errors.NotFoundError as problem:
            raise NotFound(f"NATS at {self.place}: {problem.description}") from problem
        except nats.js.errors.ServiceUnavailableError as problem:
            raise self.away(problem.description or "JetStream is not available") from problem
        except nats.js.errors.APIError as problem:
            if problem.code is not None and problem.code >= 500:
                raise self.away(problem.description or "JetStream failed") from problem
            raise Unsupported(f"NATS at {self.place} refuses: {problem.description}") from problem
        except (
            nats.errors.MaxPayloadError,
            nats.errors.BadSubjectError,
            nats.js.errors.InvalidBucketNameError,
        ) as problem:
            raise Unsupported(f"NATS at {self.place} cannot take that: {problem}") from problem
        except (nats.errors.Error, OSError, TimeoutError) as problem:
            raise self.away(str(problem) or type(problem).__name__) from problem

    async def close(self) -> None:
        """Close the connection; what is under way is cut off."""
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            # A server that takes nothing any more would hold up the end of the process.
            with suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.close()

    async def back(self) -> None:
        """Wait until a connection that was lost is made again; a first connection is tried once."""
        while self._client is None or not self._client.is_connected:
            if self._client is None or self._client.is_closed:
                await self.client()
                return
            # The client says that it is connected, or closed, only after it is.
            self._changed.clear()
            await self._changed.wait()

    async def _connect(self) -> Client:
        client = Client()
        refusals = Refusals(len(self.url.split(",")))
        connecting = asyncio.create_task(self._log_in(client, refusals), name="noetl-nats-connect")
        try:
            # The client tries for ever once it was connected; the first time the caller decides whether to try again.
            await asyncio.wait({connecting, refusals.all}, timeout=_CONNECT_SECONDS, return_when="FIRST_COMPLETED")
            if not connecting.done():
                raise self.away(f"no connection ({refusals.last})")
            await connecting
        except nats.errors.Error as problem:
            if "authori" in str(problem).lower():
                hint = "check connection.url and connection.credentials_file"
                raise Denied(f"NATS at {self.place} refuses the log-in", hint=hint) from None
            raise self.away(f"no connection ({type(problem).__name__})") from None
        finally:
            refusals.all.cancel()
            if not client.is_connected:
                connecting.cancel()
                await asyncio.wait({connecting})
                with suppress(Exception):
                    await client.close()
        return client

    async def _log_in(self, client: Client, refusals: Refusals) -> None:
        await client.connect(
            self.url.split(","),
            name="noetl",
            max_reconnect_attempts=-1,
            reconnect_time_wait=_BETWEEN_TRIES_SECONDS,
            connect_timeout=_CONNECT_SECONDS,
            ping_interval=_PING_SECONDS,
            error_cb=refusals.note,
            closed_cb=self._closed,
            disconnected_cb=partial(self._broken, client),
            reconnected_cb=self._reconnected,
            user=self._user,
            password=self._password,
            user_credentials=None if self._credentials_file is None else str(self._credentials_file),
            # Subjects are made in `noetl.kernel.stream.subjects` and nowhere else.
            skip_subject_validation=True,
        )

    async def _closed(self) -> None:
        self._changed.set()

    async def _broken(self, client: Client) -> None:
        self.breaks += 1
        # The client would send what it still holds first over the next connection, and so ahead of what was lost on this one.
        client._pending.clear()
        client._pending_data_size = 0

    async def _reconnected(self) -> None:
        self.making += 1
        self._changed.set()


class Refusals:
    """Counts what goes wrong with a connection, until every server has refused the first try."""

    def __init__(self, servers: int) -> None:
        self._left = servers
        self.all: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last = "no answer"

    async def note(self, error: Exception) -> None:
        """Take an error of the client."""
        # Messages of the client may quote addresses with passwords in them.
        self.last = type(error).__name__
        _log.debug("the connection to NATS met %s", self.last)
        self._left -= 1
        if not self._left and not self.all.done():
            self.all.set_result(None)
