"""Who is let in without a token, who is not, and what guessing one comes to."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.integration.api.conftest import Serve
from tests.integration.api.serving import HOME, TWO_STEPS, Server

from noetl.api.access import refused_tokens
from noetl.api.access.refused_tokens import FREE
from noetl.api.connections.peer import Peer, connected_user, listed_user, listening_users
from noetl.api.endpoint import ADMINS
from noetl.api.routes.all_routes import endpoints
from noetl.errors import ConfigError, NoetlError
from noetl.runtime.nats.login import made_password, nats_connection
from noetl.runtime.remote import local_token
from noetl.runtime.remote.local_token import local_token_for
from noetl.runtime.settings.declaration import Settings
from noetl.services.credentials.local_secrets import SERVER_FILE, find_local_token, make_local_token
from noetl.testing.attacks.connections import HOST, connected, half_a_body, unfinished
from noetl.testing.attacks.other_account import NOBODY, STRANGER, answered_as, sent_and_left

pytestmark = pytest.mark.service

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another account")
LIST = "/api/executions"


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def ask(path: str = LIST, **headers: str) -> bytes:
    """Return a request."""
    given = {"Host": HOST, "Connection": "close", **{name.replace("_", "-"): text for name, text in headers.items()}}
    return f"GET {path} HTTP/1.1\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in given.items()).encode() + b"\r\n"


async def test_half_sent_bodies_take_no_place_of_a_webhook(server: Server) -> None:
    """INV-194: as many as there are places, and whoever sends a whole request is answered at once."""
    path = "/api/hooks/default/default/none/in"
    at_once = server.services.hook_limits.at_once
    async with unfinished(port_of(server), at_once + 8, half_a_body(path)):
        # Their headers were read before those of the next request on a connection made later.
        async with asyncio.timeout(5):
            assert (await server.call("POST", path, {"a": 1}, status=401))["code"] == "unauthenticated"
    async with unfinished(port_of(server), 1, half_a_body("/api/executions/1/cancel")) as others:
        await server.call("GET", LIST, status=200)
        assert not others[0].at_eof()


async def test_unfinished_bodies_of_webhooks_are_bounded_together(serve: Serve) -> None:
    """INV-194: the oldest is given up."""
    from noetl.api.access.hooks import HookLimits

    path = "/api/hooks/default/default/none/in"
    async with serve(auth=True, hook_limits=HookLimits(max_bytes=1_000, at_once=2)) as server:
        async with unfinished(port_of(server), 5, half_a_body(path, 1_000)) as readers:
            first = await readers[0].readuntil(b"}")
            assert first.startswith(b"HTTP/1.1 429")
        await server.call("POST", path, {"a": 1}, status=401)


@needs_root
async def test_another_account_is_not_let_in_by_the_loopback(serve: Serve, tmp_path: Path) -> None:
    """INV-196."""
    token, other = make_local_token(tmp_path), make_local_token(tmp_path / "other")
    assert token is not None
    assert other is not None
    async with serve(auth=None, local_token=token) as server:
        port = port_of(server)
        await server.register(TWO_STEPS)
        for user in (STRANGER, NOBODY):
            answer = await asyncio.to_thread(answered_as, user, port, ask())
            assert answer.startswith(b"HTTP/1.1 401"), answer
            assert str(token.path).encode() in answer
            assert b"two" not in answer
        assert (await asyncio.to_thread(answered_as, os.geteuid(), port, ask())).startswith(b"HTTP/1.1 200")
        # The token of another home directory says nothing: its account is looked at.
        strange = ask(Authorization=f"Bearer {other.secret.reveal()}")
        assert (await asyncio.to_thread(answered_as, STRANGER, port, strange)).startswith(b"HTTP/1.1 401")
        assert (await asyncio.to_thread(answered_as, os.geteuid(), port, strange)).startswith(b"HTTP/1.1 200")
        shown = ask(Authorization=f"Bearer {token.secret.reveal()}")
        assert (await asyncio.to_thread(answered_as, STRANGER, port, shown)).startswith(b"HTTP/1.1 200")
        # Health and webhooks are for everybody, as before.
        assert (await asyncio.to_thread(answered_as, STRANGER, port, ask("/health"))).startswith(b"HTTP/1.1 200")

        body = b'{"path": "tests/two"}'
        head = f"POST /api/execute HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        start = head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        for _ in range(3):
            await asyncio.to_thread(sent_and_left, STRANGER, port, start)
        assert (await server.call("GET", LIST, status=200))["executions"] == []


async def test_the_account_alone_makes_no_token_and_changes_no_credential_or_role(serve: Serve) -> None:
    """INV-196: a task in namespaces has the server's user id and network, but cannot read the token of the machine."""
    async with serve(auth=None) as server:
        for method, path in (("POST", "/api/tokens"), ("POST", "/api/credentials"), ("POST", "/api/roles/r/grant"),
                             ("DELETE", "/api/credentials/crm"), ("POST", "/api/datasets/d/grant")):  # fmt: skip
            problem = await server.call(method, path, {"name": "ci", "role": "worker"}, status=401)
            assert "has to show a token" in problem["detail"]
        assert await server.services.tokens.list(HOME) == []
        await server.call("GET", LIST, status=200)
        made = {"name": "ci", "role": "worker"}
        await server.call("POST", "/api/tokens", made, headers=server.local, status=201)


def test_whatever_only_administrators_change_takes_more_than_the_account() -> None:
    """INV-196."""
    proven = {one.noun for one in endpoints() if one.needs_proof}
    assert proven >= {"tokens", "credentials", "people", "datasets"}
    assert all(one.needs_proof == (one.roles == ADMINS and one.method != "GET") for one in endpoints())


async def test_what_is_forwarded_never_counts_as_local(serve: Serve, tmp_path: Path) -> None:
    """INV-196."""
    token = make_local_token(tmp_path)
    assert token is not None
    async with serve(auth=None, local_token=token) as server:
        bearer = {"Authorization": f"Bearer {token.secret.reveal()}"}
        await server.call("GET", LIST, status=200)
        await server.call("GET", LIST, headers=bearer, status=200)
        for name in ("X-Forwarded-For", "x-forwarded-proto", "Forwarded", "Via", "X-Real-IP", "CF-Connecting-IP"):
            for more in ({}, bearer):
                problem = await server.call("GET", LIST, headers={name: "127.0.0.1", **more}, status=401)
                assert "proxy" in problem["detail"]


async def test_the_token_of_the_machine_is_no_good_once_there_are_others(serve: Serve, tmp_path: Path) -> None:
    """INV-196, INV-176."""
    token = make_local_token(tmp_path)
    assert token is not None
    bearer = {"Authorization": f"Bearer {token.secret.reveal()}"}
    async with serve(auth=None, local_token=token) as server:
        await server.services.tokens.create(HOME, "a reader", "reader")
        await server.call("GET", LIST, headers=bearer, status=401)
        await server.call("GET", LIST, status=401)


async def test_the_owner_of_a_connection_is_found_in_both_versions_of_ip() -> None:
    """INV-196."""
    for host, seen in (("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")):
        family = socket.AF_INET6 if host == "::1" else socket.AF_INET
        with socket.create_server((seen, 0), family=family) as listening:
            port = listening.getsockname()[1]
            with socket.create_connection((host, port)) as made:
                own = made.getsockname()[1]
                for user_of in (connected_user, listed_user):
                    assert user_of((seen, own), (seen, port)) == os.geteuid()
                    assert user_of((seen, own), (seen, 1)) is None
                    assert user_of((seen, port), (seen, 1)) is None, "one that listens is no connection"
                assert listening_users((seen, port)) == {os.geteuid()}
            assert connected_user((seen, own), (seen, port)) is None
            assert listed_user((seen, own), (seen, port)) is None
        assert listening_users((seen, port)) == set()
    assert await Peer(None, None).user() is None


def test_a_socket_that_is_closed_is_nobodys(tmp_path: Path) -> None:
    """INV-196: it is listed as root's, without an inode; users of other namespaces all have one number."""
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: 0100007F:{port:04X} 0100007F:1F92 {state} 00000000:00000000 00:00000000 00000000 {user:5d} 0 {inode} 1 0 20 4 30 10 -1\n"
    (tmp_path / "tcp").write_text(
        head
        + row.format(port=1001, state="05", user=0, inode=0)
        + row.format(port=1002, state="02", user=0, inode=7)
        + row.format(port=1003, state="01", user=NOBODY, inode=7)
        + row.format(port=1004, state="01", user=7, inode=7)
        + row.format(port=1005, state="05", user=0, inode=7)
    )
    found = [listed_user((HOST, port), (HOST, 0x1F92), tmp_path) for port in range(1000, 1006)]
    assert found == [None, None, None, None, 7, 0]


def test_the_token_of_the_machine_is_for_its_owner_and_shown_to_nobody_elses_server(tmp_path: Path) -> None:
    """INV-196."""
    made = make_local_token(tmp_path / "keys")
    assert made is not None
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert make_local_token(tmp_path / "keys") == made
    assert find_local_token(tmp_path / "keys") == made.secret
    assert find_local_token(tmp_path) is None

    head = "  sl  local_address\n"
    row = "   0: 0100007F:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user} 0 7 1 0 100 0 0 10 0\n"
    tables = tmp_path / "net"
    tables.mkdir()

    def given(url: str = "http://127.0.0.1:8082") -> Any:
        return local_token_for(url, tmp_path / "keys", tables)

    assert given() == made.secret, "where nobody can tell, the token is needed"
    for user, expected in ((os.geteuid(), made.secret), (0, made.secret), (STRANGER, None)):
        (tables / "tcp").write_text(head + row.format(user=user))
        assert given() == expected
    (tables / "tcp").write_text(head)
    assert given() is None
    for url in ("https://127.0.0.1:8082", "http://example.org:8082", "http://127.0.0.1.evil.example", "http://[::1"):
        assert given(url) is None

    (tmp_path / "keys" / SERVER_FILE).chmod(0o644)
    assert make_local_token(tmp_path / "keys") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept in"):
        make_local_token(tmp_path / "file")


async def test_our_nats_password_is_not_shown_to_a_port_that_another_account_listens_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-196: it is looked at for each connection, also for one that is made again."""
    (tmp_path / "nats").mkdir()
    made_password(tmp_path / "nats")

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "x", "auth_required": true, "max_payload": 1000}\r\n')
        heard.append(await reader.readline())
        writer.close()

    heard: list[bytes] = []
    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connection = {"url": f"nats://127.0.0.1:{port}"}
    given = {"runtime": {"home": str(tmp_path)}, "event_store": {"connection": connection}}
    settings = Settings.model_validate(given)
    password = made_password(tmp_path / "nats").encode()
    async with listening:
        for shown in (True, False):
            if not shown:
                monkeypatch.setattr(local_token, "listening_users", lambda address, tables: {STRANGER})
            with pytest.raises(NoetlError):
                await nats_connection(settings).client()
            assert b'"user"' in heard[-1]
            assert (password in heard[-1]) is shown, heard


async def test_guessing_tokens_gets_slower_and_a_good_one_is_answered_at_once(
    guarded: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-197."""
    token, _ = await guarded.services.tokens.create(HOME, "mine", "reader")
    for number in range(FREE):
        bad = {"Authorization": f"Bearer noetl_{number}"}
        await guarded.call("GET", LIST, headers=bad, status=401)
    # The same again is a mistake and no guess.
    for _ in range(20):
        await guarded.call("GET", LIST, headers=bad, status=401)
    assert "bad tokens" not in caplog.text
    async with connected(port_of(guarded)) as (reader, writer):
        writer.write(ask(Authorization="Bearer noetl_more"))
        waiting = asyncio.create_task(reader.read())
        await guarded.call("GET", LIST, headers={"Authorization": f"Bearer {token.reveal()}"}, status=200)
        assert not waiting.done()
        answer = await waiting
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 1\r\n" in answer
    assert "11 different bad tokens came from 127.0.0.1" in caplog.text
    assert "noetl_more" not in caplog.text
    shown = (await guarded.services.metrics.exposition())[0].decode()
    assert f"noetl_refused_tokens_total {FREE + 21}.0" in shown
    assert refused_tokens.MOST_SECONDS > 1


async def test_guessing_the_token_of_the_machine_is_slowed_and_told_like_any_other(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-197: where no token is asked for, a bad one that looks local is a guess unless its sender is local without it."""
    async with serve(auth=None, local_token=make_local_token(tmp_path)) as server:
        for number in range(FREE):
            bad = {"Authorization": f"Bearer noetl_local_{number}", "X-Forwarded-For": "192.0.2.1"}
            await server.call("GET", LIST, headers=bad, status=401)
        for _ in range(FREE):
            await server.call("GET", LIST, headers={"X-Forwarded-For": "192.0.2.1"}, status=401)
        assert "bad tokens" not in caplog.text
        await server.call("GET", LIST, headers={**bad, "Authorization": "Bearer noetl_local_more"}, status=429)
        await server.call("GET", LIST, headers={"Authorization": "Bearer noetl_local_another_home"}, status=200)
        assert f"{FREE + 1} different bad tokens came from 127.0.0.1" in caplog.text
        assert "noetl_local_more" not in caplog.text
        shown = (await server.services.metrics.exposition())[0].decode()
        assert f"noetl_refused_tokens_total {FREE + 1}.0" in shown
