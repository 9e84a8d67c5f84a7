"""What the crash tests stand on: a database with a table of effects, an engine that asks, processes that do the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
from tests.faults.killable import Killable

from noetl.engine.plan.state import State
from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.engines.short_leases import WAIT_SECONDS, Driven, until

PROCESS = Path(__file__).with_name("process.py")
SCOPED = {"noetl.tenant": "default", "noetl.organization": "default"}
"""Lets the owner see the rows of the organization the tests act for."""
OPEN_ROWS = ("execution_head", "command", "stage", "frame")
TABLES = """
CREATE TABLE public.effect (key text PRIMARY KEY, runs integer NOT NULL DEFAULT 1);
CREATE TABLE public.queue (id integer PRIMARY KEY, status text NOT NULL DEFAULT 'pending');
CREATE TABLE public.gate (key text PRIMARY KEY);
"""


class Process(Killable):
    """An engine in a process of its own."""

    def __init__(self, url: str, home: Path, *, fault: str = "", slots: int = 0, reaps: bool = False) -> None:
        arguments = (str(PROCESS), url, str(home), str(slots), str(int(reaps)))
        log, environ = home / "processes.log", {"NOETL_FAULT": fault}
        super().__init__(*arguments, log=log, environ=environ, patience=WAIT_SECONDS)

    async def ready(self) -> None:
        """Wait until it works."""
        assert self._popen.stdout is not None
        line = await asyncio.to_thread(self._popen.stdout.readline)
        assert line == "ready\n", self._log.read_text()


class EngineTestbed:
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

    async def fill_queue(self, rows: int) -> None:
        """Give cursor loops something to claim."""
        await self.effects.execute("INSERT INTO public.queue (id) SELECT generate_series(0, $1 - 1)", rows)

    async def start(self, playbook: str, **payload: Any) -> int:
        """Register a playbook and ask for an execution of it."""
        entry = (await self.engine.catalog.register(self.scope, playbook)).entry
        payload = {"pg": {"dsn": self.url}, **payload}
        return (await self.engine.start(self.scope, entry, payload, requested_by="test")).execution_id

    async def finished(self, execution_id: int) -> State:
        """Wait until an execution has ended, whoever ends it."""

        async def ended() -> State | None:
            with suppress(Unavailable):  # a test may have restarted the server
                state = await self.engine.executions.state(self.scope, execution_id)
                return state if state.ended else None
            return None

        found = await until(ended, f"an end of execution {execution_id}")
        assert isinstance(found, State)
        return found

    async def events(self, execution_id: int, *kinds: str) -> list[Any]:
        """Return events of an execution by type, in their order."""
        query = (
            "SELECT event_type, command_id, frame_id, status, result FROM noetl.event"
            " WHERE execution_id = $1 AND event_type = ANY ($2) ORDER BY position"
        )
        return list(await self.effects.fetch(query, execution_id, list(kinds)))

    async def last_event(self, execution_id: int) -> str:
        """Return the type of the last event of an execution."""
        query = "SELECT event_type FROM noetl.event WHERE execution_id = $1 ORDER BY position DESC LIMIT 1"
        return str(await self.effects.fetchval(query, execution_id))

    async def effect_runs(self) -> dict[str, int]:
        """Return how often the work behind each effect was done."""
        return {row["key"]: row["runs"] for row in await self.effects.fetch("SELECT key, runs FROM public.effect")}

    @asynccontextmanager
    async def shut_gate(self, key: str) -> AsyncIterator[None]:
        """Let the row of this key wait before its end while the block runs."""
        keeper = await asyncpg.connect(self.url)
        try:
            async with keeper.transaction():
                await keeper.execute("INSERT INTO public.gate VALUES ($1)", key)
                yield
        finally:
            await keeper.close()

    async def at_the_gate(self, rows: int = 1) -> None:
        """Wait until so many rows wait at the gate, those of killed workers among them."""

        async def waiting() -> bool:
            return await self._at_the_gate() >= rows

        await until(waiting, f"{rows} rows at the gate")

    async def is_gate_free(self) -> bool:
        """Tell whether nothing waits at the gate."""
        return not await self._at_the_gate()

    async def _at_the_gate(self) -> int:
        found = await self.effects.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND query LIKE '%public.gate%'"
        )
        return int(found)

    async def assert_clean(self) -> None:
        """Nothing is open any more, and replay tells what the projections tell."""
        for table in OPEN_ROWS:
            left = await self.effects.fetch(f"SELECT * FROM noetl.{table}")
            assert not left, f"{table} has open rows: {[dict(row) for row in left]}"
        database = Database(self.url)
        ledger = PostgresLedger(database)
        try:
            await assert_parity(database, ledger, connect(database, ledger, payloads=self.driven.runtime.payloads))
        finally:
            await ledger.close()
            await database.close()
