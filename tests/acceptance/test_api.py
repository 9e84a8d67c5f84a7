"""The API from end to end: a person with a token starts a playbook, a worker elsewhere does it over HTTP, and all agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from noetl.api.serve import serve
from noetl.api.services import Services
from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.catalog.postgres import PostgresEntries
from noetl.runtime.assembly.engine import open_engine, producer_of
from noetl.runtime.config import load_settings
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.remote.awaited_server import Waiting
from noetl.runtime.remote.worker import open_remote_worker
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.store import CredentialStore
from noetl.services.credentials.tokens import ApiTokens

pytestmark = pytest.mark.service

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: words, path: demo/words}
workload: {name: world, numbers: 7}
workflow:
  - step: greet
    tool: {kind: shell, command: "echo hello {{ workload.name }}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop:
      in: "{{ range(workload.numbers) }}"
      iterator: number
      spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 3}}
    tool: {kind: noop}
    next: {arcs: [{step: last, when: "{{ event.name == 'loop.done' }}", set: {ctx.greeted: true}}]}
  - step: last
    tool: {kind: shell, command: "echo done"}
"""


@dataclass(frozen=True)
class Api:
    """A server that asks for tokens, with a worker that reaches it over HTTP."""

    url: str
    session: aiohttp.ClientSession
    people: Runtime

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Call a route as the holder of a writer's token."""
        async with self.session.request(method, self.url + path, json=body, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()


@pytest.fixture
async def api(owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """Everything connected as `noetl server` and `noetl worker` do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)
    settings = load_settings()
    async with AsyncExitStack() as stack:
        people = await stack.enter_async_context(open_runtime(settings))
        runtime = await stack.enter_async_context(open_runtime(settings))
        engine = await stack.enter_async_context(open_engine(runtime))
        producer, tokens = producer_of(people, "server"), ApiTokens(people.database)
        services = Services(
            engine=engine,
            database=people.database,
            worker_database=runtime.database,
            ledger=people.ledger,
            history=people.history,
            catalog=Catalog(
                PostgresEntries(people.database, people.ledger), people.payloads, people.ids.mint, producer
            ),
            payloads=people.payloads,
            replay=people.replay,
            verifier=people.verifier,
            credentials=CredentialStore(people.database, KeyRing.load(tmp_path / "keys", {}, create=True)),
            tokens=tokens,
            metrics=Metrics("0", database=runtime.database),
            mint=people.ids.mint,
            producer=producer,
            version="0",
            auth_required=True,
            default_scope=people.scope,
        )
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve(services, "127.0.0.1", 0, auth_configured=True, ready=port.set_result))
        stack.push_async_callback(_ended, serving)
        url = f"http://127.0.0.1:{await port}"
        token, _ = await tokens.create(people.scope, "worker", "worker")
        await stack.enter_async_context(open_remote_worker(settings, url, token, Waiting(nullcontext, print), slots=3))
        writer, _ = await tokens.create(people.scope, "person", "writer")
        headers = {"Authorization": f"Bearer {writer.reveal()}"}
        session = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
        yield Api(url, session, people)


async def _ended(serving: asyncio.Task[None]) -> None:
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_playbook_runs_over_http_and_every_surface_agrees(api: Api) -> None:
    await api.call("POST", "/api/catalog/register", {"content": PLAYBOOK})
    body = {"path": "demo/words", "payload": {"name": "you"}}
    started = await api.call("POST", "/api/execute", body, **{"Idempotency-Key": "first"})
    name = started["execution_id"]
    ended = await api.call("GET", f"/api/executions/{name}?wait=60")
    assert (ended["status"], ended["error"]) == ("COMPLETED", None)
    assert ended["workload"] == {"name": "you", "numbers": 7}
    assert ended["steps_entered"] == {"greet": 1, "each": 1, "last": 1}
    assert ended["result_step"] == "last"
    (listed,) = (await api.call("GET", "/api/executions"))["executions"]
    assert (listed["status"], listed["execution_id"]) == ("COMPLETED", name)
    assert (await api.call("GET", f"/api/vars/{name}/greeted"))["value"] is True
    again = await api.call("POST", "/api/execute", body, **{"Idempotency-Key": "first"})
    assert again["execution_id"] == name

    replayed = await api.call("GET", f"/api/replay/state?execution_id={name}&projection=all")
    (execution,) = replayed["rows"]["execution"]
    assert execution["row"]["status"] == "COMPLETED"
    (stage,) = replayed["rows"]["stage"]
    assert (stage["row"]["frames_committed"], stage["row"]["rows"]) == (3, 7)
    await api.people.projector().run_until(await api.people.ledger.head())
    report = await api.people.verifier.verify(api.people.scope)
    assert report.differences == []


async def test_the_worker_is_seen_and_a_cancellation_reaches_it(api: Api) -> None:
    (pool,) = (await api.call("GET", "/api/worker/pools"))["pools"]
    assert [worker["slots"] for worker in pool["workers"]] == [3]
    slow = PLAYBOOK.replace("echo hello {{ workload.name }}", "sleep 60")
    await api.call("POST", "/api/catalog/register", {"content": slow})
    name = (await api.call("POST", "/api/execute", {"path": "demo/words"}))["execution_id"]
    command = f"/api/commands/{name}/greet/1/0"
    view = await api.call("GET", f"/api/executions/{name}")
    assert view["active_steps"] == ["greet"]
    cancelled = await api.call("POST", f"/api/executions/{name}/cancel", {"reason": "too slow"})
    assert cancelled["status"] == "CANCELLED"
    assert (await api.call("GET", command))["status"] == "CANCELLED"
