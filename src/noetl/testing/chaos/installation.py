"""A whole installation on one machine: PostgreSQL, NATS, an S3 server, and every role in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import Final, Literal

import psutil

from noetl.runtime.nats.server import NatsServer
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.chaos.clock import WrongClocks
from noetl.testing.chaos.disk import SmallDisk
from noetl.testing.chaos.plan import Targets
from noetl.testing.chaos.processes import RoleProcess, spark_processes
from noetl.testing.chaos.s3_process import S3Process
from noetl.testing.servers.s3 import free_ports

WritePath = Literal["ledger", "shadow", "stream"]
LEASE_SECONDS: Final = 5
SERVERS: Final = ("postgres", "nats", "s3")
"""What the roles stand on."""


class Installation:
    """The processes of one run, in a folder of its own; started before the trouble, healed after it."""

    def __init__(self, folder: Path, write_path: WritePath, *, spark: bool) -> None:
        self._folder = folder
        self._write_path = write_path
        self._spark = spark
        self.database = EmbeddedServer(folder / "database")
        self._nats = NatsServer(folder / "nats")
        self._s3 = S3Process(folder / "s3")
        self.disk = SmallDisk(folder / "node")
        self.clocks = WrongClocks(folder)
        self.roles: dict[str, RoleProcess] = {}
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._wrong_clocks = False
        self._key = b64encode(token_bytes(32)).decode()

    async def start(self) -> None:
        """Start everything and return once the servers under the roles answer."""
        self._wrong_clocks = self.clocks.build()
        self.disk.mount()
        await asyncio.to_thread(self.database.start)
        await asyncio.to_thread(migrations.upgrade, self.database.url())
        await self._nats.start()
        await asyncio.to_thread(self._s3.start)
        for name, arguments in self._commands().items():
            role = RoleProcess(name, arguments, self._folder, self.environ() | self.clocks.environ(name))
            self.roles[name] = role
            role.start()

    def targets(self) -> Targets:
        """Return what can go wrong here."""
        return Targets(
            processes=(*self.roles, *(["spark"] if self._spark else [])),
            servers=SERVERS,
            disks=("node",) if self.disk.mounted else (),
            clocks=tuple(self.roles) if self._wrong_clocks else (),
        )

    def environ(self) -> dict[str, str]:
        """Return the settings of every role."""
        return {
            "NOETL_HOME": str(self.disk.directory),
            "NOETL_DATABASE_URL": self.database.url("noetl_owner"),
            "NOETL_SECRET_KEY": self._key,
            "NOETL_EVENT_STORE__WRITE_PATH": self._write_path,
            "NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": "nats-jetstream",
            "NOETL_EVENT_STORE__CONNECTION__URL": self._nats.url,
            "NOETL_EVENT_STORE__HEADS__EVERY_SECONDS": "5",
            "NOETL_EVENT_STORE__LEASE_SECONDS": str(LEASE_SECONDS),
            "NOETL_PAYLOAD_STORE__BACKEND": "s3",
            "NOETL_PAYLOAD_STORE__CONNECTION__ENDPOINT": self._s3.endpoint,
            "NOETL_PAYLOAD_STORE__CONNECTION__BUCKET": self._s3.bucket,
            "NOETL_PAYLOAD_STORE__CONNECTION__ACCESS_KEY": "noetl",
            "NOETL_PAYLOAD_STORE__CONNECTION__SECRET_KEY": "noetl-secret",
            "NOETL_PAYLOAD_STORE__CONNECTION__ALLOW_HTTP": "true",
            "NOETL_PAYLOAD_STORE__THRESHOLD_BYTES": "256",
            "NOETL_LAKE__LOCATION": str(self._folder / "lake"),
            "NOETL_SPARK__DRIVER_MEMORY": "1g",
            "NOETL_SPARK__MASTER": "local[1]",
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
        }

    async def take_away(self, server: str, *, crash: bool) -> None:
        """Let a server that the roles stand on be gone."""
        if server == "postgres":
            await asyncio.to_thread(self._crash_postgres if crash else self.database.stop)
        elif server == "nats":
            await (self._nats.kill() if crash else self._nats.stop())
        else:
            await asyncio.to_thread(self._s3.kill)

    async def bring_back(self, server: str) -> None:
        """Start a server again where it was."""
        if server == "postgres":
            await asyncio.to_thread(self.database.start)
        elif server == "nats":
            if self._nats.pid is None:
                await self._nats.start()
        else:
            await asyncio.to_thread(self._s3.start)

    def spark(self, what: signal.Signals) -> None:
        """Send a signal to every driver of Spark and its JVM."""
        for process in spark_processes(self.roles.values()):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(what)

    async def heal(self) -> None:
        """Let everything run as it should."""
        self.disk.free()
        for server in SERVERS:
            await self.bring_back(server)
        for name, role in self.roles.items():
            self.clocks.set(name, 0.0)
            role.resume()
            role.start()
        self.spark(signal.SIGCONT)

    def noetl(self, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line with the settings of the roles."""
        return subprocess.run(
            [sys.executable, "-m", "noetl", *arguments],
            cwd=self._folder, env=os.environ | self.environ(), capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip

    async def end(self) -> None:
        """Leave no process behind."""
        self.spark(signal.SIGKILL)
        for role in self.roles.values():
            role.kill()
        await self._nats.kill()
        await asyncio.to_thread(self._s3.kill)
        await asyncio.to_thread(self.database.destroy)
        self.disk.unmount()

    def _crash_postgres(self) -> None:
        pid = self.database.status().pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _commands(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {
            "server": ("server", "--port", str(self._port)),
            "worker-1": ("worker", "--slots", "4", "--server", self.url),
            "worker-2": ("worker", "--slots", "4"),
            "projector": ("projector",),
            "scheduler": ("scheduler",),
            "relay": ("relay",),
        }
        if self._write_path != "ledger":
            found["materializer"] = ("materializer",)
        return found
