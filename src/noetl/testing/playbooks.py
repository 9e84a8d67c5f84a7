"""A pytest plugin: `playbooks` runs playbooks for real, with an engine and a worker of this process on the test's ledger.

Payloads, keys and caches live under the test's own directory. After the test, replay must equal the projections and
the inline rows, read through the payload store that the test wrote to.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from noetl.catalog.playbooks import Entry
from noetl.credentials.store import CredentialStore
from noetl.dispatch.engine import Engine
from noetl.execute.worker import Worker
from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.ledger.references import PostgresReferences
from noetl.model.stream import Scope
from noetl.plan.state import State
from noetl.project.folds.registry import FoldRegistry
from noetl.project.stores import DEFAULT, StoredByType, StoreLine
from noetl.project.upcast import Upcasters
from noetl.runtime.engine import open_engine, open_worker
from noetl.runtime.node_number import Ids
from noetl.runtime.run import RunResult, Watcher, run_entry
from noetl.runtime.secrets import open_keyring
from noetl.runtime.settings import Settings
from noetl.runtime.wiring import Runtime, open_payloads
from noetl.testing.parity import Projections, assert_parity, connect

WAIT_SECONDS = 60.0
SLOTS = 8


def playbook(body: str, path: str = "tests/it") -> str:
    """Return the text of a playbook from everything below its header."""
    name = path.rpartition("/")[2]
    head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {path}}}\n"
    return head + textwrap.dedent(body)


class Playbooks:
    """Registers playbooks, runs them and reads what they left behind."""

    def __init__(self, runtime: Runtime, engine: Engine, owner_url: str) -> None:
        self.runtime = runtime
        self.engine = engine
        self.owner_url = owner_url
        """A login that may read every table."""
        self.scope: Scope = runtime.scope
        self.home: Path = runtime.settings.runtime.home
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None

    async def worker(self, slots: int = SLOTS) -> Worker:
        """Return the worker of this test, started at the first call; only that call may choose its slots."""
        if self._worker is None:
            self._worker = await self._stack.enter_async_context(
                open_worker(self.runtime, self.engine.dispatch(self.scope), slots=slots)
            )
        return self._worker

    async def close(self) -> None:
        """Let the worker finish what it has begun."""
        await self._stack.aclose()

    async def register(self, text: str) -> Entry:
        """Register a playbook."""
        return (await self.engine.catalog.register(self.scope, text)).entry

    async def start(self, text: str, workload: dict[str, Any] | None = None) -> State:
        """Register a playbook and start it, with a worker at hand."""
        await self.worker()
        entry = await self.register(text)
        return await self.engine.start(self.scope, entry, workload, requested_by="tests")

    async def finished(self, execution_id: int) -> State:
        """Wait for the end of an execution; one that does not come to an end fails the test."""
        state = await self.engine.finished(self.scope, execution_id, WAIT_SECONDS)
        assert state.ended, f"execution {execution_id} has not ended: active {state.active}, waiting {state.waiting}"
        return state

    async def run(self, text: str, workload: dict[str, Any] | None = None) -> State:
        """Run a playbook to its end."""
        return await self.finished((await self.start(text, workload)).execution_id)

    async def run_alone(self, text: str, workload: dict[str, Any] | None = None) -> RunResult:
        """Run a playbook as `noetl run` does, with a worker for this run alone."""
        assert self._worker is None, "the test's own worker would take the work"
        entry = await self.register(text)
        async with asyncio.timeout(WAIT_SECONDS):
            return await run_entry(self.runtime, self.engine, entry, workload or {}, slots=SLOTS, watcher=Watcher())

    async def data(self, state: State, step: str) -> Any:
        """Return what a step came to, fetched if it is kept outside the ledger."""
        return await self.engine.executions.data(self.scope, state.results[step])

    async def credential(self, name: str, type_name: str, **data: Any) -> None:
        """Keep a credential, encrypted, as a user would."""
        store = CredentialStore(self.runtime.database, open_keyring(self.runtime.settings))
        await store.put(self.scope, name, type_name, data)

    async def events(self, execution_id: int, *types: str) -> list[dict[str, Any]]:
        """Return the events of an execution in the order they were recorded, all or those of some types."""
        async with self.runtime.database.transaction(self.scope) as connection:
            rows = await connection.fetch(
                "SELECT event_type, node_name, command_id, frame_id, loop_id, status, error, current_index, meta,"
                " context, result FROM noetl.event WHERE execution_id = $1 ORDER BY event_id",
                execution_id,
            )
        found = [{**row} for row in rows if not types or row["event_type"] in types]
        for event in found:
            for name in ("meta", "context", "result"):
                event[name] = {} if event[name] is None else orjson.loads(event[name])
        return found

    def as_shown(self, state: State) -> str:
        """Return all that a state says as text, for looking something up in it."""
        return msgspec.json.encode(state, order="sorted").decode()

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
