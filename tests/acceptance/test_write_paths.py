"""Playbooks and pipelines where every event goes through the stream: nothing about them changes but the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from noetl.engine.plan.state import State
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.stream import NatsStream
from noetl.kernel.stream.port import WRITES
from noetl.kernel.stream.write_path.written_messages import trimmed
from noetl.runtime.assembly.engine import open_engine, open_worker
from noetl.runtime.roles.server import open_server
from noetl.runtime.service import Stopping
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.write_paths import assert_alike, write_path_stream

pytestmark = pytest.mark.service

WRITERS = 1000
JSON = {"Content-Type": "application/json"}

CHILD = playbook(
    """
    workflow:
      - step: double
        tool: {kind: python, input: {n: "{{ n }}"}, code: "result = {'n': 2 * n}"}
    """,
    "tests/child",
)
PARENT = playbook(
    """
    workflow:
      - step: rows
        loop:
          in: "{{ range(40) | list }}"
          iterator: n
          spec: {mode: parallel, max_in_flight: 4, frame: {max_rows: 5}}
        tool: {kind: python, input: {n: "{{ iter.n }}"}, code: "result = {'n': n + 1}"}
        next: {arcs: [{step: child}]}
      - step: child
        tool: {kind: playbook, path: tests/child, input: {n: "{{ rows | length }}"}}
        next: {arcs: [{step: flaky}]}
      - step: flaky
        tool:
          kind: python
          code: |
            raise ValueError("not today")
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: continue}}]}}
    """,
    "tests/parent",
)


@asynccontextmanager
async def open_at(url: str, home: Path) -> AsyncIterator[Runtime]:
    """Give a runtime; at its end replay holds."""
    settings = Settings.model_validate({"runtime": {"home": str(home)}, "database": {"url": url}})
    async with open_runtime(settings) as runtime:
        yield runtime
        await assert_parity(
            runtime.database, runtime.ledger, connect(runtime.database, runtime.ledger, payloads=runtime.payloads)
        )


async def ran(runtime: Runtime) -> tuple[State, int]:
    """Run the playbook and return how it ended."""
    async with open_engine(runtime, "test") as engine:
        await engine.catalog.register(runtime.scope, CHILD)
        entry = (await engine.catalog.register(runtime.scope, PARENT)).entry
        async with open_worker(runtime, engine.dispatch(runtime.scope), slots=8):
            started = await engine.start(runtime.scope, entry, None, requested_by="tests")
            state = await engine.finished(runtime.scope, started.execution_id, 90.0)
        await engine.children.close()
    return state, started.execution_id


async def told(runtime: Runtime, execution_id: int) -> list[str]:
    return sorted([e.event_type async for e in runtime.history.read_execution(runtime.scope, execution_id)])


async def test_a_playbook_runs_through_the_stream_as_without_it(owner_url: str, tmp_path: Path) -> None:
    """INV-113."""
    async with open_at(owner_url, tmp_path) as runtime:
        plain, first = await ran(runtime)
        async with write_path_stream(runtime.database, runtime.ledger, MemoryStream(WRITES)):
            streamed, second = await ran(runtime)
        again, third = await ran(runtime)
        assert [state.status for state in (plain, streamed, again)] == ["COMPLETED"] * 3
        assert streamed.results["child"].data == plain.results["child"].data == again.results["child"].data
        assert await told(runtime, second) == await told(runtime, first) == await told(runtime, third)


@pytest.mark.parametrize("way", ["ledger", "shadow", "stream"])
async def test_each_of_a_thousand_writers_at_once_reads_back_what_it_wrote(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, way: str
) -> None:
    """INV-114."""
    everybody = asyncio.Barrier(WRITERS)

    async def body_of(fact: dict[str, Any]) -> AsyncIterator[bytes]:
        """Send a request half, and the rest once all others are under way, too."""
        text = json.dumps(fact).encode()
        yield text[:10]
        await everybody.wait()
        yield text[10:]

    settings = Settings.model_validate(
        {
            "runtime": {"home": str(tmp_path)},
            "database": {"url": owner_url},
            "event_store": {
                "write_path": way,
                "distribution_backend": "nats-jetstream",
                "connection": {"url": nats_url, "stream_prefix": stream_prefix},
            },
        }
    )
    said: list[str] = []
    async with (
        open_server(settings, Stopping(), said.append, port=0) as serving,
        aiohttp.ClientSession(serving.url, connector=aiohttp.TCPConnector(limit=WRITERS)) as http,
    ):

        async def write_and_read(number: int) -> bool:
            fact = {"event_type": "business.seen", "aggregate_id": f"thing-{number % 50}", "context": {"n": number}}
            async with http.post("/api/events", data=body_of(fact), headers=JSON) as answer:
                assert answer.status == 201, await answer.text()
                recorded = await answer.json()
            headers = {"Noetl-Read-Token": recorded["read_token"]}
            place = f"/api/events/{recorded['event_id']}?execution_id={recorded['execution_id']}"
            async with http.get(place, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                return (await answer.json())["context"] == {"n": number}

        found = await asyncio.gather(*(write_and_read(number) for number in range(WRITERS)))
        assert found == [True] * WRITERS
        async with http.get("/metrics") as answer:
            text = await answer.text()
        assert ("publish_ack_seconds_count 0.0" in text) == (way != "stream")
        assert any("acknowledges it" in one for one in said) == (way == "stream")
        runtime = serving.runtime
        await runtime.ledger.settled()
        versions = [e.stream_version async for e in runtime.ledger.read(runtime.scope.stream("business/thing-7"))]
        assert versions == list(range(1, WRITERS // 50 + 1))
    async with open_at(owner_url, tmp_path) as runtime:
        if way == "stream":
            await WritePathChange(runtime.database, runtime.ledger.way).to("ledger")
        if way == "shadow":
            assert await assert_alike(runtime.database) >= WRITERS


async def test_what_waits_is_decided_on_and_verified_as_if_it_stood_in_the_ledger(
    owner_url: str, tmp_path: Path
) -> None:
    """INV-113."""
    async with open_at(owner_url, tmp_path) as runtime, open_engine(runtime, "test") as engine:
        found = connect(runtime.database, runtime.ledger, payloads=runtime.payloads)
        await WritePathChange(runtime.database, runtime.ledger.way).to("stream")
        await engine.catalog.register(runtime.scope, CHILD)
        entry = (await engine.catalog.register(runtime.scope, PARENT)).entry
        started = await engine.start(runtime.scope, entry, None, requested_by="tests")
        (grant,) = await engine.dispatch(runtime.scope).claim("tests", 1, 5.0)
        assert grant.execution_id == started.execution_id
        assert sum((await runtime.ledger.head()).positions) == 0
        await assert_parity(runtime.database, runtime.ledger, found)
        await engine.cancel(runtime.scope, started.execution_id, reason="enough", by="tests")
        await assert_parity(runtime.database, runtime.ledger, found)
        async with write_path_stream(runtime.database, runtime.ledger, MemoryStream(WRITES)):
            await runtime.ledger.settled()
        assert sum((await runtime.ledger.head()).positions) > 0


async def test_what_is_in_the_ledger_leaves_the_stream_of_writes(
    owner_url: str, tmp_path: Path, nats_connection: NatsConnection, stream_prefix: str
) -> None:
    async with open_at(owner_url, tmp_path) as runtime:
        stream = NatsStream(nats_connection, f"{stream_prefix}_writes")
        async with write_path_stream(runtime.database, runtime.ledger, stream):
            await ran(runtime)
            before = await stream.state()
            upto = await trimmed(runtime.database, stream)
            after = await stream.state()
            assert before.messages > 0
            assert (after.first_sequence, after.created) == (upto + 1, before.created)
            await ran(runtime)
