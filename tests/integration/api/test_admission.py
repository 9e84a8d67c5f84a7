"""Who may call what: every route is tried without a token and with one of each role."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from starlette.requests import Request
from tests.integration.api.conftest import Serve
from tests.integration.api.serving import HOME, TWO_STEPS, Server

from noetl.api.access import admission
from noetl.api.access.admission import KEEP_SECONDS, Admission
from noetl.api.connections.peer import Peer
from noetl.api.connections.protocol import PEER
from noetl.api.endpoint import Endpoint
from noetl.api.problems import Unauthenticated
from noetl.api.routes.all_routes import endpoints
from noetl.errors import Denied, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.credentials.tokens import ROLES, ApiTokens, Role

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


async def bearer(server: Server, role: Role, scope: Scope = HOME) -> dict[str, str]:
    """Make a token and return the headers of who holds it."""
    token, _ = await server.services.tokens.create(scope, f"a {role}", role)
    return {"Authorization": f"Bearer {token.reveal()}"}


async def test_tokens_made_while_a_server_runs_are_asked_for_until_somebody_opens_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-46, INV-176."""
    monkeypatch.setattr(admission, "KEEP_SECONDS", 0.0)
    async with serve(auth=None) as server:
        await server.call("GET", "/api/executions", status=200)
        await bearer(server, "operator")
        await bearer(server, "reader", Scope("acme", "sales"))
        await server.call("GET", "/api/executions", status=200)

        reader, worker = await bearer(server, "reader"), await bearer(server, "worker")
        for endpoint in endpoints():
            if endpoint.roles is not None:
                await server.call(endpoint.method, address(endpoint), status=401)
        await server.call("GET", "/api/executions", headers=reader, status=200)
        for headers in (reader, worker):
            await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=headers, status=403)

        for token in await server.services.tokens.list(HOME):
            if token.role != "operator":
                with pytest.raises(Denied, match="tokens are live: a "):
                    await server.services.tokens.open_again(HOME)
            await server.services.tokens.revoke(HOME, token.token_id)
        await server.call("GET", "/api/executions", status=401)
        assert await server.services.tokens.open_again(HOME) == 2
        assert await server.services.tokens.open_again(HOME) == 0
        await server.call("GET", "/api/executions", status=200)
        await server.call("GET", "/api/executions", headers=reader, status=401)


async def test_a_token_that_has_expired_is_still_asked_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-176."""
    monkeypatch.setattr(admission, "KEEP_SECONDS", 0.0)
    async with serve(auth=None) as server:
        await server.services.tokens.create(HOME, "brief", "reader", timedelta(microseconds=1))
        await server.call("GET", "/api/executions", status=401)
        assert await server.services.tokens.open_again(HOME) == 1
        await server.call("GET", "/api/executions", status=200)
        await server.services.tokens.create(HOME, "longer", "reader", timedelta(days=1))
        await server.call("GET", "/api/executions", status=401)


async def test_work_claimed_by_a_poll_that_is_no_longer_admitted_goes_to_another_at_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-177."""
    monkeypatch.setattr(admission, "KEEP_SECONDS", 60.0)
    claim = {"worker_id": "noetl://tenant/default/org/default/cluster/local/worker/one", "want": 1, "wait_seconds": 20}
    async with serve(auth=None) as server:
        await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, status=201)
        poll = asyncio.create_task(server.call("POST", "/api/commands/claim", claim, status=401))
        admin, worker = await bearer(server, "admin"), await bearer(server, "worker")
        await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=admin, status=201)
        assert (await poll)["code"] == "unauthenticated"
        claimed = await server.call("POST", "/api/commands/claim", claim, headers=worker)
        assert [one["attempt"] for one in claimed["commands"]] == [2]

        again = await bearer(server, "worker")
        await server.call("GET", "/api/catalog/tests/two", headers=again, status=200)
        tokens = server.services.tokens
        await tokens.revoke(HOME, (await tokens.list(HOME))[-1].token_id)
        await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=admin, status=201)
        await server.call("POST", "/api/commands/claim", claim, headers=again, status=401)
        claimed = await server.call("POST", "/api/commands/claim", claim, headers=worker)
        assert [one["attempt"] for one in claimed["commands"]] == [2]


async def test_whoever_waits_for_an_answer_is_looked_at_again_before_it_is_given(serve: Serve) -> None:
    """INV-177."""
    async with serve(auth=None) as server:
        await server.call("POST", "/api/catalog/register", {"content": TWO_STEPS}, status=201)
        started = await server.call("POST", "/api/execute", {"path": "tests/two"}, status=201)
        name = started["execution_id"]
        waiting = asyncio.create_task(server.call("GET", f"/api/executions/{name}?wait=1.2", status=401))
        await bearer(server, "reader")
        assert (await waiting)["code"] == "unauthenticated"


@pytest.mark.parametrize("auth", [None, False], ids=["there are none", "none are wanted"])
async def test_a_token_that_is_shown_is_checked_where_none_is_asked_for(auth: bool | None, serve: Serve) -> None:
    """INV-46."""
    async with serve(auth=auth) as server:
        for endpoint in endpoints():
            for headers in ({"Authorization": "Bearer bogus"}, {"Authorization": "Basic dTpw"}):
                status = 200 if endpoint.template in OPEN else 401
                await server.call(endpoint.method, address(endpoint), headers=headers, status=status)
        await server.call("GET", "/api/executions", status=200)
        strange = await bearer(server, "reader", Scope("acme", "sales"))
        await server.call("POST", "/api/execute", {"path": "tests/two"}, headers=strange, status=403)
        await server.call("GET", "/api/executions", status=200)


class CountedTokens(ApiTokens):
    """Counts how often it is asked whether there are any, and gives no answer while it is away."""

    looks = 0
    is_away = False

    async def any_ever(self, scope: Scope) -> bool:
        self.looks += 1
        if self.is_away:
            raise Unavailable("PostgreSQL does not answer")
        return await super().any_ever(scope)


@pytest.fixture
def listing() -> Endpoint:
    """A route that anybody may call where no tokens are asked for."""
    return next(one for one in endpoints() if one.name == "list_all_executions")


@pytest.fixture
def request_of_ours() -> Iterator[Request]:
    """A request on a connection of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as made:
        peer = Peer(made.getsockname(), made.getpeername())
        yield Request({"type": "http", "headers": [(b"host", b"localhost")], PEER: peer})


@pytest.mark.parametrize("guarded", [False, True], ids=["none", "some"])
async def test_while_the_database_is_away_it_stays_as_it_was_whether_tokens_are_asked_for(
    guarded: bool, database: Database, listing: Endpoint, request_of_ours: Request
) -> None:
    """INV-115: nobody can make a token then, and facts go on to be taken."""
    now = 100.0
    tokens = CountedTokens(database)
    gate = Admission(tokens, required=None, default_scope=HOME, clock=lambda: now)

    async def admits() -> bool:
        try:
            return (await gate.caller(request_of_ours, listing)).name == "local"
        except Unauthenticated:
            return False

    tokens.is_away = True
    with pytest.raises(Unavailable):
        await admits()
    tokens.is_away = False
    if guarded:
        await tokens.create(HOME, "a reader", "reader")
    assert await admits() is not guarded
    tokens.is_away = True
    for looks in (3, 4):
        now += KEEP_SECONDS
        assert [await admits() for _ in range(3)] == [not guarded] * 3
        assert tokens.looks == looks
    tokens.is_away = False
    if not guarded:
        await tokens.create(HOME, "a reader", "reader")
    now += KEEP_SECONDS
    assert not await admits()


async def test_whether_there_are_tokens_is_looked_up_once_a_second_however_many_ask(
    database: Database, listing: Endpoint, request_of_ours: Request
) -> None:
    now = 100.0
    tokens = CountedTokens(database)
    gate = Admission(tokens, required=None, default_scope=HOME, clock=lambda: now)

    async def admitted() -> list[str]:
        callers = await asyncio.gather(
            *(gate.caller(request_of_ours, listing) for _ in range(20)), return_exceptions=True
        )
        return [type(one).__name__ if isinstance(one, Exception) else one.name for one in callers]

    assert await admitted() == ["local"] * 20
    await tokens.create(HOME, "a reader", "reader")
    now += KEEP_SECONDS * 0.99
    assert await admitted() == ["local"] * 20
    assert tokens.looks == 1
    now += KEEP_SECONDS * 0.02
    assert await admitted() == [Unauthenticated.__name__] * 20
    assert tokens.looks == 2
