"""A writer in the write path `stream`: facts that the stream acknowledges, and appends that wait for the materializer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetl.model.event import Draft
from noetl.model.ids import organization_root_id
from noetl.runtime.settings import Settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path import open_write_path
from noetl.stream.facts import Facts
from noetl.testing.drafts import Drafts


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
