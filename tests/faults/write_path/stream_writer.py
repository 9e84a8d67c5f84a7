"""A writer in the write path `stream`: facts that the stream acknowledges, and appends that wait for the materializer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetl.kernel.ledger.postgres.write_path import WritePath
from noetl.kernel.stream.losses.journal import Journal
from noetl.kernel.stream.write_path.facts import Facts
from noetl.model.event import Draft
from noetl.model.ids import organization_root_id
from noetl.runtime.nats.server import NatsServer
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.losses import journal_directory
from noetl.runtime.write_path.movers import open_write_path
from noetl.testing.samples.drafts import Drafts


def settings_of(url: str, home: Path, nats: str, prefix: str, way: str = "stream") -> Settings:
    """Return the settings of a process in a write path."""
    connection = {"url": nats, "stream_prefix": prefix}
    store = {"write_path": way, "distribution_backend": "nats-jetstream", "connection": connection, "lease_seconds": 2}
    told: dict[str, Any] = {"runtime": {"home": str(home)}, "database": {"url": url}, "event_store": store}
    return Settings.model_validate(told)


def at_ledger(settings: Settings) -> Settings:
    """Return the settings of a process that goes back to the ledger."""
    return settings.model_copy(update={"event_store": settings.event_store.model_copy(update={"write_path": "ledger"})})


@dataclass(frozen=True)
class Writer:
    """What writes in one process."""

    runtime: Runtime
    facts: Facts
    drafts: Drafts

    def fact(self, thing: str) -> Draft:
        """Return a fact that decides nothing."""
        root = organization_root_id(self.runtime.scope.tenant_id, self.runtime.scope.organization_id)
        return self.drafts.business(f"business/{thing}", root)

    async def write(self, count: int, acknowledged: Callable[[int], None]) -> None:
        """Write facts and appends by turns, at once, and tell the id of each that was acknowledged."""

        async def one(number: int) -> None:
            draft = self.fact(f"thing-{number % 5}")
            if number % 3:
                await self.facts.record(draft)
            else:
                await self.runtime.ledger.append(draft.stream, [draft])
            acknowledged(draft.event_id)

        await asyncio.gather(*(one(number) for number in range(count)))


@asynccontextmanager
async def open_writer(settings: Settings) -> AsyncIterator[Writer]:
    """Give a writer, with relay and materializer in the same process."""
    async with open_runtime(settings) as runtime, open_write_path(runtime, "tests") as facts:
        assert facts is not None
        yield Writer(runtime, facts, Drafts(runtime.scope, runtime.ids.mint))


class Recorder:
    """Records facts as a process does that publishes alone: whatever it records stays in the stream."""

    def __init__(self, runtime: Runtime, facts: Facts) -> None:
        self.runtime = runtime
        self._facts = facts
        self._drafts = Drafts(runtime.scope, runtime.ids.mint)

    async def record(self, count: int) -> dict[int, str]:
        """Record facts, and return the tokens of their writers by event."""
        root = organization_root_id(self.runtime.scope.tenant_id, self.runtime.scope.organization_id)
        drafts = [self._drafts.business(f"business/thing-{number % 5}", root) for number in range(count)]
        tokens = await asyncio.gather(*map(self._facts.record, drafts))
        return {draft.event_id: str(token) for draft, token in zip(drafts, tokens, strict=True)}


@asynccontextmanager
async def open_recorder(settings: Settings) -> AsyncIterator[Recorder]:
    """Give what records facts that nobody materializes."""
    async with open_runtime(settings) as runtime, open_stream(settings, runtime.database, "writes") as writes:
        await writes.open()
        way = WritePath(runtime.database)
        way.mode = "stream"
        journal = Journal(journal_directory(settings))
        facts = Facts(writes, way, journal)
        try:
            yield Recorder(runtime, facts)
        finally:
            await facts.close()
            journal.close()


class ForgetfulServer:
    """A NATS server that comes back with what it had earlier: the same streams, without their last messages."""

    def __init__(self, directory: Path) -> None:
        self._server = NatsServer(directory)
        self._data, self._kept = directory / "data", directory / "kept"

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return self._server.url

    async def start(self) -> None:
        """Start the server."""
        await self._server.start()

    async def keep(self) -> None:
        """Restart the server, and keep a copy of all that it has."""
        await self._server.stop()
        await asyncio.to_thread(shutil.copytree, self._data, self._kept)
        await self._server.start()

    async def forget(self) -> None:
        """Kill the server and start it with what was kept."""
        await self._server.kill()
        await asyncio.to_thread(shutil.rmtree, self._data)
        await asyncio.to_thread(shutil.copytree, self._kept, self._data)
        await self._server.start()

    async def kill(self) -> None:
        """End the server."""
        await self._server.kill()


async def recorded_in(runtime: Runtime) -> set[int]:
    """Return the facts that are in the ledger, each of which is there once."""
    found = [
        event.event_id
        for thing in range(5)
        async for event in runtime.ledger.read(runtime.scope.stream(f"business/thing-{thing}"))
    ]
    assert len(found) == len(set(found))
    return set(found)
