"""What the crash tests stand on: a database with a table of effects, an engine that asks, processes that do the work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.plan.state import State
from noetl.testing.engine import Driven
from noetl.testing.parity import assert_parity, connect

PROCESS = Path(__file__).with_name("process.py")
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.05
OPEN_ROWS = ("execution_head", "command", "stage", "frame")
TABLES = """
CREATE TABLE public.effect (key text PRIMARY KEY, runs integer NOT NULL DEFAULT 1);
CREATE TABLE public.queue (id integer PRIMARY KEY, status text NOT NULL DEFAULT 'pending');
"""


async def until(holds: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Look again and again until something holds, and return what it gave."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = await holds()
                if found:
                    return found
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{WAIT_SECONDS:g} s went by without {what}") from None


class Process:
    """An engine in a process of its own."""

    def __init__(self, url: str, home: Path, *, fault: str = "", slots: int = 0, reaps: bool = False) -> None:
        arguments = [sys.executable, str(PROCESS), url, str(home), str(slots), str(int(reaps))]
        self._log = home / "processes.log"
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                arguments, env={**os.environ, "NOETL_FAULT": fault}, stdout=subprocess.PIPE, stderr=log
            )
        self.pid = self._popen.pid

    async def ready(self) -> None:
        """Wait until it works."""
        assert self._popen.stdout is not None
        line = await asyncio.to_thread(self._popen.stdout.readline)
        assert line == b"ready\n", self._log.read_text()

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(what)

    async def paused(self) -> None:
        """Stop it where it is, and return once it stands still."""
        self.send(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    async def ended(self) -> int:
        """Wait for its end and return how it ended."""
        return await asyncio.wait_for(asyncio.to_thread(self._popen.wait), WAIT_SECONDS)

    async def killed(self) -> None:
        """Wait until it has killed itself at its fault point."""
        assert await self.ended() == -signal.SIGKILL, self._log.read_text()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()


class Ground:
    """A test's database with its engine, its effects and its processes."""

    def __init__(self, url: str, home: Path, driven: Driven, effects: asyncpg.Connection) -> None:
        self.url = url
        self.home = home
        self.driven = driven
        self.effects = effects
        self.scope = driven.runtime.scope
        self.engine = driven.engine
        self._processes: list[Process] = []

    def process(self, *, fault: str = "", slots: int = 4, reaps: bool = True) -> Process:
        """Start a process that works, takes back, or both."""
        process = Process(self.url, self.home, fault=fault, slots=slots, reaps=reaps)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Leave no process behind."""
        for process in self._processes:
            process.close()

    async def start(self, playbook: str, **payload: Any) -> int:
        """Register a playbook and ask for an execution of it."""
        entry = (await self.engine.catalog.register(self.scope, playbook)).entry
        payload = {"pg": {"dsn": self.url}, **payload}
        return (await self.engine.start(self.scope, entry, payload, requested_by="test")).execution_id

    async def finished(self, execution_id: int) -> State:
        """Wait until an execution has ended, whoever ends it."""

        async def ended() -> State | None:
            state = await self.engine.executions.state(self.scope, execution_id)
            return state if state.ended else None

        found = await until(ended, f"an end of execution {execution_id}")
        assert isinstance(found, State)
        return found

    async def events(self, execution_id: int, *kinds: str) -> list[Any]:
        """Return events of an execution by type, in their order."""
        async with self.driven.runtime.database.transaction(self.scope) as connection:
            return list(
                await connection.fetch(
                    "SELECT event_type, command_id, frame_id, current_index, payload_sha256, status, meta, result"
                    " FROM noetl.event WHERE execution_id = $1 AND event_type = ANY ($2) ORDER BY position",
                    execution_id,
                    list(kinds),
                )
            )

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Read rows of open work."""
        async with self.driven.runtime.database.transaction(self.scope) as connection:
            return list(await connection.fetch(query, *values))

    async def effect_runs(self) -> dict[str, int]:
        """Return how often the work behind each effect was done."""
        return {row["key"]: row["runs"] for row in await self.effects.fetch("SELECT key, runs FROM public.effect")}

    async def assert_clean(self) -> None:
        """Nothing is open any more, and replay tells what the projections tell."""
        for table in OPEN_ROWS:
            left = await self.effects.fetch(
                f"SELECT * FROM noetl.{table} WHERE tenant_id = $1", self.scope.tenant_id  # noqa: S608
            )
            assert not left, f"{table} has open rows: {[dict(row) for row in left]}"
        database = Database(self.url)
        ledger = PostgresLedger(database)
        try:
            await assert_parity(database, ledger, connect(database, ledger, payloads=self.driven.runtime.payloads))
        finally:
            await ledger.close()
            await database.close()
