"""Every route is asked for another organization's things with tokens of every role: nothing of them is shown, changed or broken."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.integration.api.generated_requests import failures_of
from tests.integration.api.serving import HOME, Server

from noetl.api.routes.all_routes import endpoints
from noetl.model.stream import Scope
from noetl.services.credentials.tokens import ROLES
from noetl.testing.attacks.tenants import Attempt, attempts

pytestmark = pytest.mark.service

MARKER = "a-value-that-only-its-owner-may-read"
GENERATED = 12
"""Requests per operation."""
PLAYBOOK = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: theirs, path: tests/theirs}}
workload: {{marker: {MARKER}, items: [1, 2, 3]}}
workflow:
  - step: each
    loop: {{in: "{{{{ workload.items }}}}", iterator: item, spec: {{mode: parallel, max_in_flight: 1, frame: {{max_rows: 1}}}}}}
    tool: {{kind: python, code: "def main(x):\\n    return x", input: {{x: "{{{{ iter.item }}}}"}}}}
"""


async def owned(server: Server) -> dict[str, str]:
    """Make things in one organization and return what they are called by."""
    token, _ = await server.services.tokens.create(HOME, "owner", "admin")
    headers = {"Authorization": f"Bearer {token.reveal()}"}
    await server.call("POST", "/api/catalog/register", {"content": PLAYBOOK}, headers=headers, status=201)
    started = await server.call("POST", "/api/execute", {"path": "tests/theirs"}, headers=headers, status=201)
    execution_id = started["execution_id"]
    fact = {"event_type": "business.seen", "aggregate_id": "thing", "context": {"marker": MARKER}}
    recorded = await server.call("POST", "/api/events", fact, headers=headers, status=201)
    credential = {"name": "theirs", "type": "generic", "data": {"token": MARKER}}
    await server.call("POST", "/api/credentials", credential, headers=headers)
    (grant,) = await server.services.engine.dispatch(HOME).claim("owner", 1, 5.0)
    return {
        "execution_id": str(execution_id),
        "event_id": recorded["event_id"],
        "catalog_id": started["catalog_id"],
        "command_id": grant.command_id,
        "stage_id": "1",
        "frame_id": "1",
        "task_id": "7a1f6b0e-6f0f-5f57-9c0a-3c1f0f5f2c11",
        "token_id": "7a1f6b0e-6f0f-5f57-9c0a-3c1f0f5f2c11",
        "invalidation_id": "1",
        "backfill_id": "1",
        "path": "tests/theirs",
        "name": "theirs",
        "dag": "theirs",
        "tenant": "acme",
        "organization": "sales",
    }


async def state_of(server: Server, execution_id: str) -> Any:
    """Return the owner's view of the execution."""
    token, _ = await server.services.tokens.create(HOME, "looks", "reader")
    headers = {"Authorization": f"Bearer {token.reveal()}"}
    return await server.call("GET", f"/api/executions/{execution_id}", headers=headers, status=200)


async def answer(server: Server, attempt: Attempt, headers: dict[str, str]) -> tuple[int, str]:
    given = headers | {"Content-Type": "application/json"}
    data = None if attempt.body is None else json.dumps(attempt.body)
    timeout = aiohttp.ClientTimeout(total=20)
    async with server.session.request(
        attempt.method, server.url + attempt.path, data=data, headers=given, timeout=timeout
    ) as response:
        return response.status, await response.text()


async def test_no_route_shows_or_changes_what_belongs_to_another_organization(guarded: Server) -> None:
    """INV-22, INV-46."""
    things = await owned(guarded)
    before = await state_of(guarded, things["execution_id"])
    asked = 0
    for role in ROLES:
        token, _ = await guarded.services.tokens.create(Scope("acme", "sales"), f"stranger {role}", role)
        headers = {"Authorization": f"Bearer {token.reveal()}"}
        for endpoint in endpoints():
            if endpoint.roles is not None and role not in endpoint.roles:
                continue
            for attempt in attempts(endpoint, things):
                status, text = await answer(guarded, attempt, headers)
                asked += 1
                assert status < 500 or status == 503, (role, attempt, status, text)
                assert MARKER not in text, (role, attempt, text)
    assert asked > 500
    after = await state_of(guarded, things["execution_id"])
    assert after == before
    # The same requests show it to their owner, so they would have shown it to anybody who was not stopped.
    token, _ = await guarded.services.tokens.create(HOME, "owner again", "reader")
    headers = {"Authorization": f"Bearer {token.reveal()}"}
    reads = [one for route in endpoints() if route.method == "GET" for one in attempts(route, things)]
    shown = [one.path for one in reads if MARKER in (await answer(guarded, one, headers))[1]]
    assert len(shown) > 3


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_no_generated_request_makes_the_server_fail(server: Server) -> None:
    described = await server.call("GET", "/api/openapi.json", status=200)
    found = await asyncio.to_thread(failures_of, described, server.url, GENERATED)
    assert found == []
