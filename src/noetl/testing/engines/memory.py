"""A whole engine in memory: ledger, payloads, catalog, dispatch, reaper and a worker with the real tools, no server.

Leases, work that waits and what the reaper looks for follow one clock, which a test moves on; nobody has to sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.dispatch.stores import EngineStores, memory_stores
from noetl.engine.tools.port import Credential
from noetl.engine.tools.registry import known_kinds, load_tools
from noetl.engine.tools.resources import WorkerResources
from noetl.engine.worker.services import Services
from noetl.engine.worker.worker import Worker
from noetl.errors import NotFound
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.services.credentials.redactor import Redactor
from noetl.testing.engines.memory_parity import assert_memory_parity
from noetl.testing.engines.playbook_runs import PlaybookRuns
from noetl.testing.samples.drafts import PRODUCER

SCOPE = Scope("default", "default")
NODE = 7


class Clock:
    """The time of a ledger in memory: it runs with the process's, ahead of it by what a test has let pass."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC) + self._ahead

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += timedelta(seconds=seconds)


class NoSecrets:
    """An organization without credentials, for playbooks that need none."""

    def __init__(self) -> None:
        self.redaction = Redactor()

    @property
    def credentials(self) -> NoSecrets:
        """Itself."""
        return self

    async def credential(self, name: str) -> Credential:
        """Find none."""
        raise NotFound(f"there is no credential {name}")

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Find none."""
        if playbook.keychain:
            raise NotFound("there is no keychain")
        return {}

    async def secret(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Find none."""
        raise NotFound(f"there is no secret {entry.name}")


@dataclass(frozen=True)
class _Shared:
    """What all engines of a test have in common, as processes have a database."""

    ledger: MemoryLedger
    stores: EngineStores
    payloads: PayloadStore
    clock: Clock
    home: Path


class MemoryPlaybooks(PlaybookRuns):
    """Playbooks on an engine in memory."""

    def __init__(self, shared: _Shared, node: int) -> None:
        ids = SnowflakeGenerator(node, lambda: time.time_ns() // 1_000_000)
        engine = Engine(
            shared.stores,
            shared.ledger,
            shared.payloads,
            ids.mint,
            ids.mint_many,
            f"{PRODUCER}/{node}",
            kinds=tuple(sorted(known_kinds())),
        )
        super().__init__(engine, shared.ledger, SCOPE, self._working)
        self._shared = shared
        self._node = node
        self.ledger = shared.ledger
        self.clock = shared.clock

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[MemoryPlaybooks]:
        """Let the worker and the engine end in order."""
        try:
            yield self
        finally:
            await self.close()
            await self.engine.close()

    def beside(self) -> AbstractAsyncContextManager[MemoryPlaybooks]:
        """Give another engine on the same ledger, as another process has one."""
        return MemoryPlaybooks(self._shared, self._node + 1).opened()

    @asynccontextmanager
    async def _working(self, dispatch: Dispatch, slots: int) -> AsyncIterator[Worker]:
        resources = WorkerResources()
        services = Services(
            scope=SCOPE,
            tools=load_tools({"python": {"cache": self._shared.home / "python"}}),
            secrets=NoSecrets(),
            store=self._shared.payloads,
            resources=resources,
            find=dispatch.reference,
        )
        worker = Worker(f"n{self._node}/worker", dispatch, services, slots=slots)
        running = asyncio.create_task(worker.run(), name="noetl-worker")
        try:
            yield worker
            await worker.stop()
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await resources.aclose()


def memory_ledger(clock: Clock) -> MemoryLedger:
    """Return a ledger that answers whenever it is asked."""
    return MemoryLedger(clock, FoldedRows)


@asynccontextmanager
async def open_memory_playbooks(
    home: Path, payloads: PayloadStore | None = None, make_ledger: Callable[[Clock], MemoryLedger] = memory_ledger
) -> AsyncIterator[MemoryPlaybooks]:
    """Give playbooks on an engine in memory; at the end, its whole history folds to the rows that stand.

    The reaper does not run by itself: a test lets it look with `engine.reaper.sweep()`. Payloads are in memory, too, unless
    a store is given.
    """
    clock = Clock()
    ledger = make_ledger(clock)
    stores = memory_stores(ledger.work, ledger)
    shared = _Shared(ledger, stores, payloads or MemoryPayloadStore(clock), clock, home)
    async with MemoryPlaybooks(shared, NODE).opened() as playbooks:
        yield playbooks
    await assert_memory_parity(ledger)
