"""Who may call what: every route is tried without a token and with one of each role."""

from __future__ import annotations

import pytest
from tests.unit.api.serving import TWO_STEPS, Server

from noetl.api.endpoint import Endpoint
from noetl.api.routes.all_routes import endpoints
from noetl.credentials.tokens import ROLES
from noetl.model.stream import Scope

OPEN = {"/health", "/api/health", "/api/openapi.json"}
FOR_ALL = {
    "/metrics",
    "/api/catalog/{path}",
    "/api/executions/{execution_id}/cancellation-check",
    "/api/commands/{execution_id}/{command_id}",
    "/api/result/resolve",
}
"""What every role may call."""


def address(endpoint: Endpoint) -> str:
    """Return an address of a route."""
    values = {name: "1234567890123" if kind is int else "x" for name, kind in endpoint.parameters.items()}
    values |= {"token_id": "7a1f6b0e-6f0f-5f57-9c0a-3c1f0f5f2c11"} if "token_id" in values else {}
    return endpoint.template.format(**values)


async def test_every_route_refuses_a_caller_without_a_token(guarded: Server) -> None:
    for endpoint in endpoints():
        if endpoint.template in OPEN:
            assert endpoint.roles is None
            await guarded.call(endpoint.method, address(endpoint), status=200)
            continue
        for headers in ({}, {"Authorization": "Bearer noetl_unknown"}, {"Authorization": "Basic dTpw"}):
            problem = await guarded.call(endpoint.method, address(endpoint), headers=headers, status=401)
            assert problem["code"] == "unauthenticated", endpoint.template


async def test_every_route_refuses_the_roles_it_does_not_take(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    """INV-46."""
    for endpoint in endpoints():
        if endpoint.roles is None:
            continue
        others = set(ROLES) - endpoint.roles
        assert others or endpoint.template in FOR_ALL, f"{endpoint.template} is open to every role"
        for role in others:
            problem = await guarded.call(endpoint.method, address(endpoint), headers=bearers[role], status=403)
            assert problem["code"] == "denied"
        for role in endpoint.roles:
            answer = await guarded.session.request(
                endpoint.method, guarded.url + address(endpoint), headers=bearers[role]
            )
            assert answer.status not in (401, 403, 500), (endpoint.template, role)


async def test_a_token_reaches_its_own_organization_alone(guarded: Server, bearers: dict[str, dict[str, str]]) -> None:
    """INV-46, INV-22."""
    token, _ = await guarded.services.tokens.create(Scope("acme", "sales"), "theirs", "admin")
    theirs = {"Authorization": f"Bearer {token.reveal()}"}
    writer = bearers["writer"]
    await guarded.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, headers=writer, status=201)
    started = await guarded.call("POST", "/api/execute", {"path": "tests/two"}, headers=writer, status=201)
    name = started["execution_id"]
    assert (await guarded.call("GET", "/api/executions", headers=theirs))["executions"] == []
    for path in (f"/api/executions/{name}", f"/api/executions/{name}/events", f"/api/vars/{name}"):
        await guarded.call("GET", path, headers=theirs, status=404)
    await guarded.call("POST", f"/api/executions/{name}/cancel", headers=theirs, status=404)
    await guarded.call("GET", "/api/catalog/tests/two", headers=theirs, status=404)
    query = f"/api/replay/state?execution_id={name}&tenant_id=default&organization_id=default"
    await guarded.call("GET", query, headers=theirs, status=403)


async def test_a_revoked_token_is_refused_within_a_moment(guarded: Server) -> None:
    tokens = guarded.services.tokens
    token, info = await tokens.create(Scope("default", "default"), "gone soon", "reader")
    await tokens.revoke(Scope("default", "default"), info.token_id)
    await guarded.call("GET", "/api/executions", headers={"Authorization": f"Bearer {token.reveal()}"}, status=401)


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Host": "127.0.0.1.evil.example:80"}],
)
async def test_a_page_of_another_site_cannot_use_a_server_without_tokens(
    server: Server, headers: dict[str, str]
) -> None:
    problem = await server.call("GET", "/api/executions", headers=headers, status=403)
    assert problem["code"] == "denied"
    await server.call("GET", "/api/executions", headers={"Origin": "http://localhost:3000"}, status=200)


async def test_tokens_are_made_listed_and_revoked_over_the_api(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    admin = bearers["admin"]
    body = {"name": "ci", "role": "writer", "expires_in_seconds": 60}
    made = await guarded.call("POST", "/api/tokens", body, headers=admin, status=201)
    theirs = {"Authorization": f"Bearer {made['token']}"}
    await guarded.call("GET", "/api/executions", headers=theirs, status=200)
    listed = (await guarded.call("GET", "/api/tokens", headers=admin, status=200))["tokens"]
    assert [one["token"] for one in listed] == [None] * (len(ROLES) + 1)
    gone = await guarded.call("DELETE", f"/api/tokens/{made['token_id']}", headers=admin, status=200)
    assert gone["revoked_at"] is not None
