"""A server of the API on a real database, playbooks to run on it, and how to call it."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from noetl.api.serve import serve
from noetl.api.services import Services
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.stores import postgres_stores
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.metrics.process import Metrics
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.local_secrets import make_local_token
from noetl.services.credentials.secret import Secret
from noetl.services.credentials.store import CredentialStore
from noetl.services.credentials.tokens import ApiTokens
from noetl.testing.engines.parity import Projections, connect

HOME = Scope("default", "default")
PRODUCER = "noetl://tenant/default/org/default/cluster/local/worker/tests"

TWO_STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: two, path: tests/two}
workload: {size: 3, nested: {a: 1, b: 2}}
workflow:
  - step: first
    tool: {kind: python, code: "def main(size):\\n    return {'size': size}", input: {size: "{{ workload.size }}"}}
    set: {ctx.seen: "{{ first.size }}"}
    next: {arcs: [{step: second}]}
  - step: second
    tool: {kind: python, code: "def main():\\n    return 1"}
"""
LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: tests/loop}
workload: {items: [10, 20, 30, 40, 50]}
workflow:
  - step: each
    loop: {in: "{{ workload.items }}", iterator: item, spec: {mode: parallel, max_in_flight: 1, frame: {max_rows: 2}}}
    tool: {kind: python, code: "def main(x):\\n    return x", input: {x: "{{ iter.item }}"}}
"""

ONE_TRY = LOOP.replace("max_rows: 2", "max_rows: 2, max_attempts: 1")
"""The same, but a frame that fails is not tried again."""
CALLING = LOOP.replace(
    '{kind: python, code: "def main(x):\\n    return x", input: {x: "{{ iter.item }}"}}',
    "{kind: playbook, path: tests/two}",
)
"""The same, but its rows run other playbooks."""


SHARED = Secret("what the server and its local workers share")


@dataclass(frozen=True)
class Server:
    """A running server and how to call it."""

    url: str
    services: Services
    session: aiohttp.ClientSession
    projections: Projections

    @property
    def local(self) -> dict[str, str]:
        """The headers by which a caller shows the token of this machine."""
        assert self.services.local_token is not None
        return {"Authorization": f"Bearer {self.services.local_token.secret.reveal()}"}

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Call a route and return its JSON; with `status`, after checking it."""
        given = {"Content-Type": "application/json", **(headers or {})}
        data = None if body is None else io.BytesIO(msgspec.json.encode(body))
        async with self.session.request(method, self.url + path, data=data, headers=given) as response:
            content = await response.read()
            assert status is None or response.status == status, (response.status, content)
            return msgspec.json.decode(content) if content else None

    async def register(self, source: str) -> dict[str, Any]:
        """Register a playbook."""
        return dict(await self.call("POST", "/api/catalog/register", {"content": source}))

    async def start(self, path: str, **fields: Any) -> str:
        """Start an execution and return its id."""
        answer = await self.call("POST", "/api/execute", {"path": path, **fields}, status=201)
        return str(answer["execution_id"])


def make_engine(database: Database, ledger: PostgresLedger, payloads: MemoryPayloadStore) -> Engine:
    """Make an engine whose reaper is not running."""
    ids = SnowflakeGenerator(7, lambda: time.time_ns() // 1_000_000)
    return Engine(postgres_stores(database, ledger), ledger, payloads, ids.mint, ids.mint_many, PRODUCER)


def make_services(
    database: Database,
    readers: Database,
    ledger: PostgresLedger,
    payloads: MemoryPayloadStore,
    engine: Engine,
    keys: Path,
    *,
    auth: bool | None,
    folds: Any = None,
) -> tuple[Services, Projections]:
    """Connect everything a server stands on."""
    projections = connect(readers, ledger, payloads=payloads, folds=folds)
    ids = SnowflakeGenerator(8, lambda: time.time_ns() // 1_000_000)
    ring = KeyRing.load(keys, {}, create=True)
    metrics = Metrics("1.2.3", database=database)
    metrics.watch_reaper(engine.reaper)
    return Services(
        engine=engine,
        database=readers,
        worker_database=database,
        ledger=ledger,
        history=projections.history,
        catalog=Catalog(PostgresEntries(readers, ledger), payloads, ids.mint, PRODUCER),
        payloads=payloads,
        replay=projections.replay,
        verifier=projections.verifier,
        credentials=CredentialStore(readers, ring),
        tokens=ApiTokens(readers),
        metrics=metrics,
        mint=ids.mint,
        producer=PRODUCER,
        version="1.2.3",
        auth_required=auth,
        default_scope=HOME,
        worker_secret=None if auth else SHARED,
        local_token=None if auth else make_local_token(keys),
    ), projections


@asynccontextmanager
async def running(services: Services, projections: Projections, *, auth: bool) -> AsyncIterator[Server]:
    """Serve on a free port for the time of the block."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(services, "127.0.0.1", 0, auth_configured=auth, ready=port.set_result))
    try:
        async with aiohttp.ClientSession() as session:
            yield Server(f"http://127.0.0.1:{await port}", services, session, projections)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
