"""Hostile documents against a running server: each is refused or ends, and nobody else waits for it (INV-187 to INV-189)."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.api.serving import HOME, TWO_STEPS, Server, make_engine, make_services, running

from noetl.errors import InputError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.language.dag.times import schedule_problem
from noetl.model.stream import Scope
from noetl.pipelines.explain.conditions import read_conditions
from noetl.testing.attacks.documents import (
    BODIES,
    CRON_NEVER_DUE,
    ENDLESS_TEMPLATES,
    ENORMOUS_TEMPLATES,
    PLAYBOOKS,
    SQL_CONDITIONS,
)

OTHER = Scope("default", "other")
Bearer = dict[str, str]


@pytest.fixture
async def server(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[Server]:
    payloads, readers = MemoryPayloadStore(), Database(database.url, as_roles=True)
    engine = make_engine(database, ledger, payloads)
    services, projections = make_services(database, readers, ledger, payloads, engine, tmp_path / "keys", auth=True)
    async with running(services, projections, auth=True) as server:
        yield server
    await engine.close()
    await readers.close()


async def bearer(server: Server, scope: Scope, role: str = "writer") -> Bearer:
    token, _ = await server.services.tokens.create(scope, f"a {role}", role)
    return {"Authorization": f"Bearer {token.reveal()}"}


async def asked(server: Server, path: str, body: Any, headers: Bearer) -> tuple[int, str]:
    given = {"Content-Type": "application/json", **headers}
    data = io.BytesIO(msgspec.json.encode(body))
    async with server.session.post(server.url + path, data=data, headers=given) as response:
        return response.status, await response.text()


async def test_one_template_does_not_stop_the_server_for_others(server: Server) -> None:
    """INV-188: while a writer's template goes on, another organization is answered; then the writer is told the bound."""
    attacker, other = await bearer(server, HOME), await bearer(server, OTHER)
    await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, headers=attacker)
    execution = await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=attacker)
    given = {"execution_id": execution["execution_id"], "template": ENDLESS_TEMPLATES["nested loops"]}
    attacks = [asyncio.create_task(asked(server, "/api/context/render", given, attacker)) for _ in range(2)]
    async with asyncio.timeout(30):
        while not any(one.name == "noetl-evaluating" for one in threading.enumerate()):  # noqa: ASYNC110 - a thread
            await asyncio.sleep(0)
    began = time.monotonic()
    for _ in range(3):
        await server.call("GET", "/api/executions", status=200, headers=other)
    others_waited = time.monotonic() - began
    # The organization's evaluations take turns, each of them seconds long: others are answered before the first ends.
    assert not any(attack.done() for attack in attacks), others_waited
    for status, said in await asyncio.gather(*attacks):
        assert 400 <= status < 500, said
        assert "it takes more steps than a template may" in said
        assert "template_unbounded" in said


@pytest.mark.slow
async def test_documents_that_are_hostile_are_refused(server: Server) -> None:
    """INV-187: no document is answered with an error of the server, and none keeps it from answering others."""
    attacker, other = await bearer(server, HOME), await bearer(server, OTHER)
    for name, content in PLAYBOOKS.items():
        status, said = await asked(server, "/api/catalog/register", {"content": content}, attacker)
        assert status < 500, (name, status, said[:300])
        await server.call("GET", "/api/executions", status=200, headers=other)
    for name, body in BODIES.items():
        headers = {"Content-Type": "application/json", **attacker}
        async with server.session.post(f"{server.url}/api/execute", data=io.BytesIO(body), headers=headers) as response:
            assert 400 <= response.status < 500, (name, response.status)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ENDLESS_TEMPLATES, *ENORMOUS_TEMPLATES])
async def test_every_hostile_template_ends_within_its_whole_budget(server: Server, name: str) -> None:
    """INV-187: with the bounds of a server in production."""
    attacker, other = await bearer(server, HOME), await bearer(server, OTHER)
    await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, headers=attacker)
    execution = await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=attacker)
    template = {**ENDLESS_TEMPLATES, **ENORMOUS_TEMPLATES}[name]
    given = {"execution_id": execution["execution_id"], "template": template}
    began = time.monotonic()
    attack = asyncio.create_task(asked(server, "/api/context/render", given, attacker))
    await server.call("GET", "/api/executions", status=200, headers=other)
    status, said = await attack
    assert 400 <= status < 500, (status, said[:300])
    assert time.monotonic() - began < 60


def test_schedules_that_are_never_due_are_refused() -> None:
    """INV-187: looking for the next moment of a schedule ends."""
    for expression in CRON_NEVER_DUE:
        assert schedule_problem(expression) is not None, expression


def test_conditions_that_are_nested_deeply_are_refused() -> None:
    """INV-187: what SQL's reader cannot read is the writer's error."""
    for text in SQL_CONDITIONS:
        with pytest.raises(InputError):
            read_conditions(text, [])
