"""Authors that use the server as a proxy or as a deputy: nothing forbidden is reached, no identity is lent unasked."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from aiohttp import web
from requests.exceptions import TooManyRedirects

from noetl.errors import Denied, InputError, NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.outgoing.blocking_sessions import guarded_session
from noetl.kernel.outgoing.guard import AddressRefused, Reach
from noetl.kernel.outgoing.guarded_request import ask
from noetl.language.playbook.model import KeychainEntry
from noetl.model.stream import Scope
from noetl.pipelines.tasks.functions.http import HttpInvoker
from noetl.runtime.outgoing import rights_of
from noetl.runtime.settings.declaration import Settings
from noetl.services.credentials.keychain.fetcher import Fetcher
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.providers.registry import all_providers
from noetl.services.credentials.store import CredentialStore
from noetl.services.credentials.tokens import ApiTokens
from noetl.testing.attacks.addresses import FORBIDDEN, Rebinding, listening

HOME = Scope("default", "default")
KEYS = KeyRing([bytes(range(32))])


class Granted(msgspec.Struct):
    """What an invoker reads of a grant."""

    job: str
    config: dict[str, Any]


def entry(kind: str, auth: str | None = None, **options: Any) -> KeychainEntry:
    """Return an entry of a keychain."""
    return KeychainEntry(name="e", kind=kind, auth=auth, options=options)  # type: ignore[arg-type]


def server_of(database: Database, environ: dict[str, str], **settings: Any) -> Fetcher:
    """Return what fetches keychains in a server with these settings."""
    own = Settings.model_validate(settings)
    return Fetcher(CredentialStore(database, KEYS), all_providers(environ), rights_of(own, database))


@pytest.mark.service
async def test_a_server_is_no_proxy_to_its_own_network_once_it_acts_for_others(database: Database) -> None:
    """INV-192."""
    async with listening() as inside:
        server = server_of(database, {})
        endpoint = f"http://127.0.0.1:{inside.port}/token"
        mine = await server.fetch(HOME, entry("oauth2", endpoint=endpoint), {})
        assert mine.fields["access_token"] == "canary-token", "without tokens it acts for the account it runs as"
        await ApiTokens(database).create(HOME, "somebody", "writer")
        inside.reached.clear()
        for address in FORBIDDEN:
            for method in ("GET", "POST", "PUT"):
                asked = entry(
                    "oauth2", endpoint=address.format(port=inside.port), method=method, headers={"X-Evil": "1"}
                )
                with pytest.raises(NoetlError) as refused:
                    await server.fetch(HOME, asked, {})
                assert refused.value.disposition == "terminal", address
                assert "outgoing.allowed" in f"{refused.value.hint} {refused.value.message}", address
        assert inside.reached == []
        allowed = server_of(database, {}, outgoing={"allowed": ["127.0.0.0/8"]})
        assert (await allowed.fetch(HOME, entry("oauth2", endpoint=endpoint), {})).fields
        inside.answer = lambda request: web.Response(status=302, headers={"Location": "/secret"})
        with pytest.raises(Denied, match="status 302"):
            await allowed.fetch(HOME, entry("oauth2", endpoint=endpoint), {})
        assert inside.reached == ["POST /token"] * 2
    for field in (
        {"method": "DELETE"},
        {"headers": {"Host": "metadata"}},
        {"headers": {"transfer-encoding": "chunked"}},
    ):
        with pytest.raises(InputError):
            await server.fetch(HOME, entry("oauth2", endpoint="http://example.org/", **field), {})


@pytest.mark.service
async def test_a_server_lends_its_identity_only_where_it_was_granted(database: Database) -> None:
    """INV-192."""
    async with listening() as vault:
        vault.answer = lambda request: web.json_response({"data": {"data": {"value": "canary"}, "metadata": {}}})
        environ = {"VAULT_ADDR": f"http://127.0.0.1:{vault.port}", "VAULT_TOKEN": "server's", "SECRET_A": "canary"}
        secret = entry("secret_manager", provider="vault", secret="db")
        assert (await server_of(database, environ).fetch(HOME, secret, {})).fields == {"value": "canary"}
        await ApiTokens(database).create(HOME, "somebody", "writer")
        vault.reached.clear()
        server = server_of(database, environ)
        for provider in ("vault", "aws", "gcp", "azure", "environment", "file", "k8s"):
            with pytest.raises(Denied, match=f"identity for {provider} is not granted to default/default") as refused:
                await server.fetch(
                    HOME, entry("secret_manager", provider=provider, secret="SECRET_A", vault="mine"), {}
                )
            assert refused.value.hint is not None
            assert "secrets.grants" in refused.value.hint
        with pytest.raises(Denied, match="is not granted"):
            await server.fetch(HOME, entry("google_id_token", audience="x"), {})
        with pytest.raises(Denied):
            await server_of(database, environ).fetch(Scope("t2", "o2"), secret, {})
        assert vault.reached == []
        granted = server_of(database, environ, secrets={"grants": {"default/default": {"identities": ["vault"]}}})
        assert (await granted.fetch(HOME, secret, {})).fields == {"value": "canary"}
        with pytest.raises(Denied, match="environment"):
            await granted.fetch(HOME, entry("secret_manager", provider="environment", secret="SECRET_A"), {})
        for name in ("../../sys/health", "a/../b", "a?list=true"):
            with pytest.raises(InputError, match="no path within"):
                await granted.fetch(HOME, entry("secret_manager", provider="vault", secret=name), {})
        # A login of the author's own goes where the author says, and so only to global addresses.
        login = {"url": environ["VAULT_ADDR"], "token": "author's"}
        await CredentialStore(database, KEYS).put(HOME, "mine", "bearer", login)
        vault.reached.clear()
        with pytest.raises(AddressRefused):
            await granted.fetch(HOME, entry("secret_manager", "mine", provider="vault", secret="db"), {})
        assert vault.reached == []


async def test_a_name_is_looked_up_once_and_what_was_judged_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-192."""
    async with listening("127.0.0.1") as judged, listening("127.0.0.2", judged.port) as hidden:
        reach = Reach(allowed=("127.0.0.1/32",))
        names = Rebinding("rebinding.test", "127.0.0.1", "127.0.0.2")
        monkeypatch.setattr(socket, "getaddrinfo", names)
        url = f"http://rebinding.test:{judged.port}/a"
        answer = await ask("GET", url, reach, headers={}, seconds=5)
        assert (answer.status, names.asked) == (200, 1)
        assert (len(judged.reached), hidden.reached) == (1, [])
        with pytest.raises(AddressRefused):
            await ask("GET", url, reach, headers={}, seconds=5)
        judged.answer = lambda request: web.Response(
            status=302, headers={"Location": f"http://127.0.0.2:{judged.port}/b"}
        )
        session = guarded_session(reach)
        with pytest.raises(TooManyRedirects):
            await asyncio.to_thread(session.get, f"http://127.0.0.1:{judged.port}/a", timeout=5)
        assert hidden.reached == []


async def test_an_answer_without_end_is_cut_off() -> None:
    """INV-192."""
    async with listening() as endless:
        endless.answer = lambda request: web.Response(body=b"x" * 5_000_000)
        url = f"http://127.0.0.1:{endless.port}/"
        answer = await ask("GET", url, Reach(private=True), headers={}, seconds=5, most_bytes=1_000)
        assert (len(answer.body), answer.whole) == (1_000, False)


async def test_functions_of_jobs_are_not_called_inside_the_servers_network() -> None:
    """INV-192."""

    async def shut() -> Reach:
        return Reach()

    async with listening() as inside:
        invoker = HttpInvoker(reach=shut)
        grant = Granted(job="j", config={"url": f"http://127.0.0.1:{inside.port}/f"})
        with pytest.raises(InputError, match=r"config\.url of job j"):
            await invoker.invoke(grant)  # type: ignore[arg-type]
        assert inside.reached == []
