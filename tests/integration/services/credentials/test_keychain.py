"""The keychain: entries of every kind, kept encrypted, renewed in time and once, by a real token server."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.errors import Denied, InputError, NotFound, OutsideUnavailable, Unsupported
from noetl.kernel.ledger.postgres.database import Database
from noetl.language.playbook.model import KeychainEntry
from noetl.model.stream import Scope
from noetl.services.credentials.keychain.fetcher import Fetcher
from noetl.services.credentials.keychain.keychain import Keychain
from noetl.services.credentials.keychain.rows import KeychainRows, KeychainUse
from noetl.services.credentials.keychain.token_requests import seconds_left
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.providers.registry import all_providers
from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.secret import Secret, revealed, secrets_in
from noetl.services.credentials.store import CredentialStore

pytestmark = pytest.mark.service

ACME, GLOBEX = Scope("acme", "care"), Scope("globex", "care")
USE = KeychainUse(ACME, "demo/shop", 7)
KEYS = KeyRing([bytes(range(32))])
CLIENT = {"client_id": "shop", "client_secret": "canary-6f1b-client"}


class TokenServer:
    """An identity provider: numbered tokens that last an hour, a count of requests, and failures on demand."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.status = 200
        self.answer: dict[str, Any] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.url = ""

    async def token(self, request: web.Request) -> web.Response:
        """Answer with the next token."""
        form = dict(await request.post()) or dict(request.query)
        if request.content_type == "application/json":
            form = await request.json()
        self.requests.append({"form": form, "method": request.method, "headers": dict(request.headers)})
        self.asked.set()
        await self.gate.wait()
        if self.status != 200:
            return web.json_response({"error": "invalid_client", "seen": dict(form)}, status=self.status)
        number = len(self.requests)
        fields = {"access_token": f"canary-token-{number}", "token_type": "Bearer", "expires_in": 3600}
        return web.json_response(fields | self.answer)


@pytest.fixture
async def server() -> AsyncIterator[TokenServer]:
    """A token server on loopback."""
    tokens = TokenServer()
    application = web.Application()
    application.router.add_route("*", "/token", tokens.token)
    async with TestServer(application) as running:
        tokens.url = str(running.make_url("/token"))
        yield tokens


class Clock:
    """A clock that goes on when told to."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    """The time of the test."""
    return Clock()


@pytest.fixture
def store(database: Database) -> CredentialStore:
    """Credentials of the test."""
    return CredentialStore(database, KEYS)


def a_keychain(database: Database, clock: Clock) -> Keychain:
    """Make a keychain as a worker of its own would have."""
    providers = all_providers({"SECRET_API": '{"key": "canary-k", "id": 7}', "SECRET_TEXT": "canary-t"})
    fetcher = Fetcher(CredentialStore(database, KEYS), providers)
    return Keychain(KeychainRows(database, KEYS), fetcher, now=clock)


@pytest.fixture
def keychain(database: Database, clock: Clock) -> Keychain:
    """A keychain of the test's database."""
    return a_keychain(database, clock)


def oauth2(server: TokenServer, **fields: Any) -> KeychainEntry:
    options = {"endpoint": server.url, "data": CLIENT, **fields.pop("options", {})}
    return KeychainEntry(**{"name": "tok", "kind": "oauth2", "scope": "global", "options": options, **fields})


async def number(keychain: Keychain, entry: KeychainEntry, use: KeychainUse = USE) -> int:
    """Return which token of the server's the keychain gives."""
    fields = await keychain.get(use, entry)
    return int(fields["access_token"].reveal().rpartition("-")[2])


async def test_static_credential_and_bearer_entries_are_resolved_in_order(
    keychain: Keychain, store: CredentialStore
) -> None:
    await store.put(ACME, "pg", "postgres", {"db_host": "h", "db_user": "u", "db_name": "n", "db_password": "canary"})
    await store.put(ACME, "crm", "bearer", {"token": "canary-b"})
    entries = [
        KeychainEntry(name="fixed", kind="static", options={"data": {"key": "canary-s", "retries": 3}}),
        KeychainEntry(name="pg", kind="credential", options={"map": {"password": "$.db_password", "host": "db_host"}}),
        KeychainEntry(name="crm", kind="bearer", auth="crm"),
        KeychainEntry(name="again", kind="static", options={"data": "earlier"}),
    ]

    def render(value: Any, before: Any, where: str, origins: Any) -> Any:
        """Stand in for templates: one entry's data are those of an earlier one."""
        if isinstance(value, dict) and value.get("data") == "earlier":
            return {"data": revealed(before["fixed"])}
        return value

    found = await keychain.resolve(USE, entries, render)
    assert found["pg"] == {"password": Secret("canary"), "host": "h"}
    assert found["crm"] == {"token": Secret("canary-b"), "access_token": Secret("canary-b")}
    assert found["again"] == found["fixed"] == {"key": Secret("canary-s"), "retries": 3}
    assert "canary" not in repr(found)
    assert Redactor(secrets_in(found)).redact("canary-s canary-b canary h") == "*** *** *** h"
    assert await keychain.list(ACME) == []


async def test_a_token_is_that_of_a_credential_of_its_server_or_of_an_earlier_entry(
    keychain: Keychain, store: CredentialStore, server: TokenServer
) -> None:
    await store.put(ACME, "own", "bearer", {"token": "canary-own"})
    await store.put(ACME, "asks", "oauth2", {**CLIENT, "token_url": server.url})
    await store.put(ACME, "none", "basic", {"username": "ada", "password": "canary"})
    entries = [
        KeychainEntry(name="own", kind="credential"),
        KeychainEntry(name="a", kind="token", auth="own"),
        KeychainEntry(name="b", kind="token", auth="asks"),
        KeychainEntry(name="c", kind="token", auth="b"),
    ]
    for _ in range(2):
        found = revealed(await keychain.resolve(USE, entries))
        assert found["a"] == {"token": "canary-own", "access_token": "canary-own"}
        assert (found["b"]["token"], found["c"]["token"]) == ("canary-token-1", "canary-token-1")
    assert len(server.requests) == 1, "what was had is kept"
    with pytest.raises(InputError):
        await keychain.get(USE, KeychainEntry(name="d", kind="token", auth="none"))


async def test_secrets_of_a_provider_are_kept_by_the_names_of_the_map(keychain: Keychain) -> None:
    mapped = {"map": {"key": "SECRET_API#key", "text": "SECRET_TEXT", "whole": "SECRET_API"}, "provider": "environment"}
    found = await keychain.get(USE, KeychainEntry(name="a", kind="secret_manager", options=mapped))
    assert revealed(found) == {"key": "canary-k", "text": "canary-t", "whole": {"key": "canary-k", "id": "7"}}
    named = KeychainEntry(name="b", kind="secret_manager", options={"secret": "SECRET_API", "provider": "environment"})
    assert revealed(await keychain.get(USE, named)) == {"key": "canary-k", "id": "7"}
    assert [(one.name, one.kind) for one in await keychain.list(ACME)] == [
        ("a", "secret_manager"),
        ("b", "secret_manager"),
    ]


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (KeychainEntry(name="a", kind="static"), InputError),
        (KeychainEntry(name="a", kind="bearer"), InputError),
        (KeychainEntry(name="a", kind="credential"), NotFound),
        (KeychainEntry(name="a", kind="secret_manager"), InputError),
        (KeychainEntry(name="a", kind="secret_manager", options={"provider": "nobody"}), InputError),
        (KeychainEntry(name="a", kind="secret_manager", options={"provider": "environment", "secret": "HOME"}), Denied),
        (KeychainEntry(name="a", kind="google_id_token"), InputError),
        (KeychainEntry(name="a", kind="oauth2", options={"endpoint": "ftp://x"}), InputError),
        (KeychainEntry(name="a", kind="static", options={"data": {"b": "c"}, "map": {"x": "y.z"}}), NotFound),
    ],
)
async def test_an_entry_that_cannot_be_resolved_says_why(
    keychain: Keychain, entry: KeychainEntry, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await keychain.get(USE, entry)


async def test_googles_tokens_need_googles_client(keychain: Keychain, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("google", "google.auth"):
        monkeypatch.setitem(sys.modules, module, None)
    entry = KeychainEntry(name="a", kind="google_id_token", options={"target_audience": "https://service.example"})
    with pytest.raises(Unsupported) as refused:
        await keychain.get(USE, entry)
    assert refused.value.hint == "pip install 'noetl[gcp]'"


def test_a_web_token_says_itself_how_long_it_lasts() -> None:
    claims = base64.urlsafe_b64encode(b'{"exp": 1000}').decode().rstrip("=")
    assert [seconds_left(f"e30.{claims}.x", now) for now in (400.0, 2000.0)] == [600.0, 0.0]
    assert {seconds_left(token, 0.0) for token in ("", "a.b.c", "a.e30.c")} == {3000.0}


async def test_a_secret_from_outside_its_regions_is_refused_or_warned_of(
    keychain: Keychain, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"provider": "environment", "secret": "SECRET_TEXT", "region": "us", "allowed_regions": ["eu"]}
    entry = KeychainEntry(name="a", kind="secret_manager", options={**options, "residency": "strict"})
    with pytest.raises(Denied, match="region us"):
        await keychain.get(USE, entry)
    advised = KeychainEntry(name="a", kind="secret_manager", options={**options, "residency": "advisory"})
    assert revealed(await keychain.get(USE, advised)) == {"value": "canary-t"}
    assert "region us" in caplog.text


async def test_a_token_is_asked_for_once_and_kept_until_it_expires(
    keychain: Keychain, server: TokenServer, clock: Clock
) -> None:
    entry = oauth2(server)
    first = await keychain.get(USE, entry)
    assert first["token_type"] == "Bearer"
    assert first["access_token"] == Secret("canary-token-1")
    assert server.requests[0]["form"] == {"grant_type": "client_credentials", **CLIENT}
    clock.advance(3599)
    assert await number(keychain, entry) == 1
    clock.advance(1)
    assert await number(keychain, entry) == 2


async def test_a_token_that_renews_itself_is_renewed_at_four_fifths_of_its_life(
    keychain: Keychain, server: TokenServer, clock: Clock
) -> None:
    entry = oauth2(server, auto_renew=True)
    assert await number(keychain, entry) == 1
    clock.advance(2879)
    assert await number(keychain, entry) == 1
    clock.advance(1)
    assert await number(keychain, entry) == 2


async def test_the_entrys_own_lifetime_bounds_the_servers(
    keychain: Keychain, server: TokenServer, clock: Clock
) -> None:
    entry = oauth2(server, ttl=60)
    assert await number(keychain, entry) == 1
    clock.advance(60)
    assert await number(keychain, entry) == 2


@pytest.mark.parametrize("workers", [1, 10])
async def test_ten_askers_on_one_or_ten_workers_renew_once(
    owner_url: str, server: TokenServer, clock: Clock, workers: int
) -> None:
    entry = oauth2(server, auto_renew=True)
    async with AsyncExitStack() as stack:
        databases = [Database(owner_url, as_roles=True, pool_max=2) for _ in range(workers)]
        for database in databases:
            stack.push_async_callback(database.close)
        keychains = [a_keychain(database, clock) for database in databases]
        for expected, seconds in ((1, 3600), (2, 3600), (3, 0)):
            askers = (number(keychains[index % workers], entry) for index in range(10))
            assert await asyncio.gather(*askers) == [expected] * 10
            clock.advance(seconds)
    assert len(server.requests) == 3


async def test_while_one_renews_the_others_go_on_with_what_still_holds(
    database: Database, server: TokenServer, clock: Clock
) -> None:
    entry = oauth2(server, auto_renew=True)
    one, other = a_keychain(database, clock), a_keychain(database, clock)
    assert await number(one, entry) == 1
    clock.advance(3000)
    server.gate.clear()
    server.asked.clear()
    renewing = asyncio.create_task(number(one, entry))
    await server.asked.wait()
    assert await number(other, entry) == 1
    server.gate.set()
    assert await renewing == 2
    assert await number(other, entry) == 2


async def test_an_asker_that_is_cancelled_does_not_take_the_others_with_it(
    keychain: Keychain, server: TokenServer
) -> None:
    server.gate.clear()
    first, second = (asyncio.create_task(number(keychain, oauth2(server))) for _ in range(2))
    await server.asked.wait()
    first.cancel()
    server.gate.set()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_renewal_that_fails_leaves_the_token_until_it_expires(
    keychain: Keychain, server: TokenServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    entry = oauth2(server, auto_renew=True)
    assert await number(keychain, entry) == 1
    server.status = 503
    clock.advance(3000)
    assert await number(keychain, entry) == 1
    assert "still used" in caplog.text
    clock.advance(600)
    with pytest.raises(OutsideUnavailable, match="status 503"):
        await keychain.get(USE, entry)


@pytest.mark.parametrize(("status", "error"), [(401, Denied), (400, Denied), (302, Denied), (429, OutsideUnavailable)])
async def test_a_refusal_names_the_server_and_no_secret(
    keychain: Keychain, server: TokenServer, status: int, error: type[Exception]
) -> None:
    server.status = status
    url = server.url.replace("http://", "http://ann:canary@") + "?key=canary"
    with pytest.raises(error) as refused:
        await keychain.get(USE, oauth2(server, options={"endpoint": url}))
    assert server.url in str(refused.value)
    assert f"status {status}" in str(refused.value)
    assert "canary" not in f"{refused.value!r} {refused.value.__cause__!r}"


async def test_a_server_that_is_away_is_unavailable(keychain: Keychain, server: TokenServer) -> None:
    entry = oauth2(server, options={"endpoint": "http://127.0.0.1:1/token"})
    with pytest.raises(OutsideUnavailable, match="does not answer"):
        await keychain.get(USE, entry)


async def test_a_refresh_token_that_the_server_replaces_is_used_next(
    keychain: Keychain, store: CredentialStore, server: TokenServer, clock: Clock
) -> None:
    await store.put(ACME, "idp", "oauth2", {"client_id": "shop", "refresh_token": "r1", "endpoint": server.url})
    entry = KeychainEntry(name="tok", kind="oauth2", auth="idp", auto_renew=True)
    server.answer = {"refresh_token": "r2"}
    await keychain.get(USE, entry)
    server.answer = {}
    for _ in range(2):
        clock.advance(3600)
        await keychain.get(USE, entry)
    sent = [(request["form"]["grant_type"], request["form"]["refresh_token"]) for request in server.requests]
    assert sent == [("refresh_token", "r1"), ("refresh_token", "r2"), ("refresh_token", "r2")]


async def test_the_request_is_sent_as_the_entry_says(keychain: Keychain, server: TokenServer) -> None:
    await keychain.get(USE, oauth2(server, name="a", options={"client_auth": "basic"}))
    await keychain.get(USE, oauth2(server, name="b", options={"method": "get"}))
    await keychain.get(USE, oauth2(server, name="c", options={"headers": {"Content-Type": "application/json"}}))
    basic, queried, in_json = server.requests
    assert basic["form"] == {"grant_type": "client_credentials"}
    assert basic["headers"]["Authorization"] == "Basic " + base64.b64encode(b"shop:canary-6f1b-client").decode()
    assert queried["method"] == "GET"
    assert queried["form"] == in_json["form"] == {"grant_type": "client_credentials", **CLIENT}


async def test_scopes_share_tokens_as_far_as_they_say(keychain: Keychain, server: TokenServer) -> None:
    other_run, other_playbook = KeychainUse(ACME, "demo/shop", 8), KeychainUse(ACME, "demo/other", 7)
    elsewhere = KeychainUse(GLOBEX, "demo/shop", 7)
    shared_by = {
        "local": {other_run: False, other_playbook: True, elsewhere: False},
        "global": {other_run: True, other_playbook: False, elsewhere: False},
        "shared": {other_run: True, other_playbook: True, elsewhere: False},
    }
    for scope, uses in shared_by.items():
        entry = oauth2(server, scope=scope, name=f"tok_{scope}")
        mine = await number(keychain, entry)
        for use, expected in uses.items():
            assert (await number(keychain, entry, use) == mine) is expected, (scope, use)


async def test_an_entry_written_anew_is_not_answered_from_the_old_one(keychain: Keychain, server: TokenServer) -> None:
    assert await number(keychain, oauth2(server)) == 1
    assert await number(keychain, oauth2(server, options={"data": {**CLIENT, "scope": "more"}})) == 2


async def test_what_is_kept_is_encrypted_and_a_changed_row_is_fetched_again(
    keychain: Keychain, server: TokenServer, owner_url: str
) -> None:
    await keychain.get(USE, oauth2(server, auto_renew=True))
    with psycopg.connect(owner_url.replace("noetl_owner@", "noetl_admin@")) as admin:
        dumped = str(admin.execute("SELECT k::text FROM noetl.keychain AS k").fetchall())
        admin.execute("UPDATE noetl.keychain SET data_encrypted = renew_config_encrypted")
    assert "global/demo/shop#tok" in dumped
    for form in ("canary", b"canary".hex(), server.url):
        assert form not in dumped
        assert form not in repr(await keychain.list(ACME))
    assert await number(keychain, oauth2(server, auto_renew=True)) == 2


async def test_what_is_due_is_renewed_without_its_playbook(
    keychain: Keychain, server: TokenServer, clock: Clock
) -> None:
    renewing, resting = oauth2(server, name="a", auto_renew=True), oauth2(server, name="b")
    for entry in (renewing, resting):
        await keychain.get(USE, entry)
    assert await keychain.renew_due(ACME) == 0
    clock.advance(3000)
    assert await keychain.renew_due(GLOBEX) == 0
    assert await keychain.renew_due(ACME) == 1
    assert await number(keychain, renewing) == 3
    assert await number(keychain, resting) == 2
    assert {one.name: one.renewals for one in await keychain.list(ACME)} == {"a": 1, "b": 0}


@pytest.mark.no_parity
async def test_entries_are_forgotten_with_their_execution_by_name_and_by_age(
    keychain: Keychain, server: TokenServer, clock: Clock, owner_url: str
) -> None:
    with psycopg.connect(owner_url.replace("noetl_owner@", "noetl_admin@")) as admin:
        admin.execute("INSERT INTO noetl.execution_head VALUES ('acme', 'care', 8, NULL, NULL, 'c', 'p', now())")
    local, wide, shared = (oauth2(server, name=scope, scope=scope) for scope in ("local", "global", "shared"))
    for entry in (local, wide, shared):
        await keychain.get(USE, entry)
    await keychain.get(KeychainUse(ACME, "demo/shop", 8), local)
    # Execution 8 is open, 7 is not.
    assert await keychain.forget_old(GLOBEX) == 0
    assert await keychain.forget_old(ACME) == 1
    assert await keychain.forget(USE, wide)
    assert not await keychain.forget(USE, wide)
    assert [(one.name, one.execution_id) for one in await keychain.list(ACME)] == [("local", 8), ("shared", None)]
    clock.advance(3600 + 86_400 + 1)
    assert await keychain.forget_old(ACME) == 2
