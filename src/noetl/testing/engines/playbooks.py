"""A pytest plugin: `playbooks` runs playbooks for real, with an engine and a worker of this process on the test's ledger.

Payloads, keys and caches live under the test's own directory. After the test, replay must equal the projections and
the inline rows, read through the payload store that the test wrote to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.worker.worker import Worker
from noetl.kernel.ledger.payload_references import PostgresReferences, RecordedErasures
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.by_type import DEFAULT, StoredByType, StoreLine
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.stream import Scope
from noetl.runtime.assembly.engine import open_engine, open_worker
from noetl.runtime.commands.run import RunResult, Watcher, run_entry
from noetl.runtime.node_number import Ids
from noetl.runtime.secrets import open_keyring
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_payloads
from noetl.services.credentials.store import CredentialStore
from noetl.testing.engines.parity import Projections, assert_parity, connect
from noetl.testing.engines.playbook_runs import SLOTS, WAIT_SECONDS, PlaybookRuns


class Playbooks(PlaybookRuns):
    """Playbooks on a runtime."""

    def __init__(self, runtime: Runtime, engine: Engine, owner_url: str) -> None:
        def opened(dispatch: Dispatch, slots: int) -> AbstractAsyncContextManager[Worker]:
            return open_worker(runtime, dispatch, slots=slots)

        super().__init__(engine, runtime.ledger, runtime.scope, opened)
        self.runtime = runtime
        self.owner_url = owner_url
        """A login that may read every table."""
        self.home: Path = runtime.settings.runtime.home

    async def run_alone(self, text: str, workload: dict[str, Any] | None = None) -> RunResult:
        """Run a playbook as `noetl run` does, with a worker for this run alone."""
        assert self._worker is None, "the test's own worker would take the work"
        entry = await self.register(text)
        async with asyncio.timeout(WAIT_SECONDS):
            return await run_entry(self.runtime, self.engine, entry, workload or {}, slots=SLOTS, watcher=Watcher())

    async def credential(self, name: str, type_name: str, **data: Any) -> None:
        """Keep a credential, encrypted, as a user would."""
        store = CredentialStore(self.runtime.database, open_keyring(self.runtime.settings))
        await store.put(self.scope, name, type_name, data)

    def projections(self) -> Projections:
        """Connect what compares replay with the live rows, through this test's payload store."""
        return connect(self.runtime.database, self.runtime.ledger, payloads=self.runtime.payloads)


@asynccontextmanager
async def open_playbooks(
    database: Database, ledger: PostgresLedger, owner_url: str, home: Path
) -> AsyncIterator[Playbooks]:
    """Give playbooks that run on a ledger, with everything else under a directory."""
    settings = Settings.model_validate({"runtime": {"home": home}})
    ids = Ids(database)
    await ids.open()
    try:
        payloads = open_payloads(settings)
        folds, upcasters = FoldRegistry(), Upcasters()
        found = connect(database, ledger, payloads=payloads, folds=folds, upcasters=upcasters)
        runtime = Runtime(
            settings=settings,
            scope=Scope(settings.runtime.tenant_id, settings.runtime.organization_id),
            database=database,
            ledger=ledger,
            history=found.history,
            payloads=payloads,
            references=PostgresReferences(database),
            ids=ids,
            folds=folds,
            upcasters=upcasters,
            projections=StoredByType([StoreLine(DEFAULT, found.store, folds)]),
            replay=found.replay,
            verifier=found.verifier,
            erasures=RecordedErasures(database),
        )
        async with open_engine(runtime, "tests") as engine:
            playbooks = Playbooks(runtime, engine, owner_url)
            try:
                yield playbooks
            finally:
                await playbooks.close()
    finally:
        await ids.close()


@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Let tests of playbooks compare by themselves: what they wrote can be read only through their payload store."""
    names = getattr(item, "fixturenames", [])
    if "playbooks" in names and "replay_parity" in names:
        names.remove("replay_parity")


@pytest.fixture
async def playbooks(
    request: pytest.FixtureRequest, database: Database, ledger: PostgresLedger, owner_url: str, tmp_path: Path
) -> AsyncIterator[Playbooks]:
    """Playbooks run for real; after the test, replay equals the live rows unless it is marked `no_parity`."""
    async with open_playbooks(database, ledger, owner_url, tmp_path / "home") as playbooks:
        yield playbooks
    if request.node.get_closest_marker("no_parity") is None:
        await assert_parity(database, ledger, playbooks.projections())
