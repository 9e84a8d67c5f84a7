"""Clients that block are bounded in bytes and in all their time, and hold no threads of others (INV-192, INV-80)."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import requests

from noetl.kernel.outgoing.blocking_sessions import guarded_session
from noetl.kernel.outgoing.blocking_threads import TOGETHER, waited
from noetl.kernel.outgoing.guard import Reach
from noetl.model.stream import Scope
from noetl.services.alerts.channels.mail import MailChannel
from noetl.services.alerts.channels.port import Message, SendFailed

HERE = Reach(private=True)
OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def saying(say: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Give the port of a server that says this to everybody, for the time of the block."""
    over, server = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while not over.is_set():
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    say(connection, over)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        over.set()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def dripping(start: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Say something, and then one byte after another, each in time for whoever waits for one."""

    def say(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(start)
        while not over.wait(0.05):
            connection.sendall(b"x")

    return say


SENT: list[int] = []
"""The sizes of what a server without end said."""


def without_end(start: bytes, piece: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Say something, and then more and more of something else."""

    def say(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65_536) if start.startswith(b"HTTP") else None
        connection.sendall(start)
        while not over.is_set():
            connection.sendall(piece)
            SENT.append(len(piece))

    return say


@pytest.mark.parametrize("start", [OK + b"X-Slow: ", OK + b"Content-Length: 100000\r\n\r\n"])
def test_a_request_has_one_deadline_however_often_a_byte_comes(start: bytes) -> None:
    """INV-192: in its head as in its body."""
    with saying(dripping(start)) as port, pytest.raises(requests.exceptions.Timeout, match=r"longer than 0\.5 seconds"):
        guarded_session(HERE, seconds=0.5).get(f"http://127.0.0.1:{port}/", timeout=30)


@pytest.mark.parametrize("head", [b"Connection: close\r\n\r\n", b"Content-Length: 900000000\r\n\r\n"])
def test_an_answer_is_read_up_to_its_largest_size(head: bytes) -> None:
    """INV-192."""
    SENT.clear()
    with (
        saying(without_end(OK + head, b"x" * 65_536)) as port,
        pytest.raises(requests.exceptions.RequestException) as cut,
    ):
        guarded_session(HERE).get(f"http://127.0.0.1:{port}/", timeout=30)
    assert "larger than 1000000 bytes" in str(cut.value)
    assert sum(SENT) < 30_000_000, "what the sockets hold is all that was sent besides"


def test_an_answer_of_the_usual_size_is_read_and_no_redirect_followed() -> None:
    """INV-192."""

    def say(connection: socket.socket, over: threading.Event) -> None:
        asked = connection.recv(65_536)
        if b"/away" in asked:
            connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /here\r\nContent-Length: 0\r\n\r\n")
        else:
            connection.sendall(OK + b'Content-Length: 9\r\n\r\n{"a": 12}')

    with saying(say) as port:
        session = guarded_session(HERE)
        for _ in range(2):
            assert session.get(f"http://127.0.0.1:{port}/here", timeout=30).json() == {"a": 12}
        with pytest.raises(requests.exceptions.TooManyRedirects):
            session.get(f"http://127.0.0.1:{port}/away", timeout=30)


def _message() -> Message:
    alert = {"severity": "error", "state": "raised", "title": "a failed"}
    return Message(delivery_id="d", tenant_id="t", organization_id="o", attempt=1, alert=alert)


@pytest.mark.parametrize("timeout", ["500ms", "9999d"])
async def test_a_mail_server_that_goes_on_greeting_is_left(timeout: str) -> None:
    """INV-80: what it says is neither gathered without end nor waited for."""
    declared = {"host": "127.0.0.1", "timeout": timeout, "security": "none", "from": "a@b", "to": "c@d"}
    say = dripping(b"220-") if timeout == "500ms" else without_end(b"220-a\r\n", b"220-more\r\n" * 100)
    with saying(say) as port, pytest.raises(SendFailed, match="cannot be reached"):
        async with asyncio.timeout(30):
            await MailChannel().send(_message(), {**declared, "port": port, "allow_private": True}, {})


async def test_an_organization_has_few_calls_under_way_and_leaves_the_threads_of_others() -> None:
    """INV-192: neither another organization nor a look-up of a host waits for them."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> str:
        begun.release()
        go_on.wait(60)
        return threading.current_thread().name

    calls = [asyncio.create_task(waited(Scope("t", "o"), hang)) for _ in range(50)]
    try:
        for _ in range(TOGETHER):
            assert await asyncio.to_thread(begun.acquire, timeout=30)
        async with asyncio.timeout(30):
            assert await waited(Scope("t", "other"), lambda: 1) == 1
            assert await asyncio.to_thread(lambda: 2) == 2
        assert not begun.acquire(blocking=False)
    finally:
        go_on.set()
    assert all(name.startswith("noetl-outgoing") for name in await asyncio.gather(*calls))
