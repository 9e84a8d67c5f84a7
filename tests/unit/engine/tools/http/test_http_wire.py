"""The http tool against servers that answer in every way the wire allows, and in some it does not."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from gzip import compress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.tools.http import pool
from noetl.engine.tools.http.tool import HttpTool
from noetl.engine.tools.outcome import Outcome

HANG_UP = b""
"""As a piece of an answer: the server hangs up."""


@pytest.fixture
async def caller(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Caller("http") as caller:
        yield caller


class Scripted:
    """Answers the requests of all its clients one after the other with the given pieces."""

    def __init__(self, *answers: list[bytes]) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.clients = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        try:
            while self._answers:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                for piece in self._answers.pop(0):
                    if piece == HANG_UP:
                        return
                    writer.write(piece)
                    await writer.drain()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Scripted, trust: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=trust)
    try:
        yield f"http{'s' if trust else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def run(caller: Caller, url: str, **options: Any) -> Outcome:
    return await HttpTool(max_bytes=100_000).run(caller.call(url=url, **options))


def answer(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode() + body


@pytest.mark.parametrize(
    "pieces",
    [
        [answer("Content-Length: 2", body=b"hi")],
        [answer("Content-Length: 2")[:9], answer("Content-Length: 2")[9:], b"h", b"i"],
        [answer("Transfer-Encoding: chunked", body=b"1\r\nh\r\n"), b"1\r\ni\r\n0\r\n\r\n"],
        [answer(), b"hi", HANG_UP],
        [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", answer("Content-Length: 2", body=b"hi")],
        [answer("Content-Encoding: gzip", "Content-Length: 22", body=compress(b"hi"))],
        [answer("Content-Encoding: gzip", body=compress(b"h") + compress(b"i")), HANG_UP],
        [answer("Content-Encoding: deflate", body=zlib.compress(b"hi")), HANG_UP],
        [answer("Content-Encoding: deflate", body=zlib.compress(b"hi", wbits=-15)), HANG_UP],
    ],
)  # fmt: skip
async def test_a_body_comes_whole_however_its_end_is_told(caller: Caller, pieces: list[bytes]) -> None:
    async with serving(Scripted(pieces)) as url:
        outcome = await run(caller, url)

    assert outcome.error is None
    assert outcome.data["data"] == "hi"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([HANG_UP], "hung up"),
        ([answer("Content-Length: 9", body=b"hi"), HANG_UP], "hung up"),
        ([answer("Transfer-Encoding: chunked", body=b"9\r\nhi"), HANG_UP], "hung up"),
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], "no HTTP"),
        ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000], "too long"),
        ([answer("Content-Encoding: gzip", body=b"\x1f\x8bnothing"), HANG_UP], "damaged"),
        ([answer("Content-Encoding: gzip", body=compress(b"hi")[:-3]), HANG_UP], "cut off"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_a_problem_that_may_pass(
    caller: Caller, pieces: list[bytes], words: str
) -> None:
    async with serving(Scripted(pieces)) as url:
        problem = (await run(caller, url, method="POST")).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("connection", True)
    assert words in problem.message


async def test_a_packed_body_is_never_unpacked_beyond_its_bound(caller: Caller) -> None:
    async with serving(Scripted([answer("Content-Encoding: gzip", body=compress(b"x" * 10_000_000)), HANG_UP])) as url:
        problem = (await run(caller, url)).error

    assert problem is not None
    assert problem.code == "response_too_large"


async def test_headers_that_come_several_times_are_joined_and_any_bytes_can_be_read(caller: Caller) -> None:
    head = b"HTTP/1.1 418 I'm a teapot\r\nX-A: 1\r\nx-a: 2\r\nX-B: \xfc\r\nX-C: \xc3\xbc\r\nContent-Length: 0\r\n\r\n"
    async with serving(Scripted([head])) as url:
        outcome = await run(caller, url)

    assert {name: outcome.data["headers"][name] for name in ("x-a", "x-b", "x-c")} == {
        "x-a": "1, 2",
        "x-b": "ü",
        "x-c": "ü",
    }
    assert outcome.error is not None
    assert outcome.error.message.endswith("answered 418 I'm a teapot")


async def test_a_user_in_the_address_is_sent_as_a_login(caller: Caller) -> None:
    script = Scripted([answer("Content-Length: 0")])
    async with serving(script) as url:
        await run(caller, url.replace("//", "//ann:hush@"))

    assert b"\r\nAuthorization: Basic YW5uOmh1c2g=\r\n" in script.requests[0]


@pytest.mark.parametrize(("method", "succeeds"), [("GET", True), ("PUT", True), ("POST", False)])
async def test_a_connection_that_was_closed_meanwhile_is_replaced_where_asking_twice_does_no_harm(
    caller: Caller, method: str, succeeds: bool
) -> None:
    fine = answer("Content-Length: 2", body=b"hi")
    # The server hangs up at the second request, as one does whose patience ended just then.
    script = Scripted([fine], [HANG_UP], [fine])
    async with serving(script) as url:
        await run(caller, url)
        outcome = await run(caller, url, method=method)

    assert (outcome.status == "ok") is succeeds
    assert script.clients == (2 if succeeds else 1)


@pytest.mark.parametrize(
    "first",
    [
        [answer("Content-Length: 2", "Connection: close", body=b"hi")],
        [answer("Content-Length: 2", body=b"hi") * 2],
    ],
)
async def test_a_connection_in_doubt_is_not_used_again(caller: Caller, first: list[bytes]) -> None:
    script = Scripted(first, [answer("Content-Length: 2", body=b"ho")])
    async with serving(script) as url:
        assert (await run(caller, url)).data["data"] == "hi"
        assert (await run(caller, url)).data["data"] == "ho"

    assert script.clients == 2


async def test_connections_that_nobody_needs_are_closed(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0.01)
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("Content-Length: 0"))
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await run(caller, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await asyncio.wait_for(gone.wait(), 10)


@pytest.mark.parametrize("headers", [{"Connection": "close"}, {"Host": "other"}])
async def test_headers_that_steer_the_connection_are_obeyed(caller: Caller, headers: dict[str, str]) -> None:
    script = Scripted([answer("Content-Length: 2", body=b"hi")])
    async with serving(script) as url:
        outcome = await run(caller, url, headers=headers)

    assert outcome.data["data"] == "hi"
    [(name, value)] = headers.items()
    assert f"\r\n{name}: {value}\r\n".encode() in script.requests[0]


async def test_a_head_is_an_answer_without_a_body(caller: Caller) -> None:
    async with serving(Scripted([answer("Content-Length: 200000")])) as url:
        outcome = await run(caller, url, method="HEAD")

    assert (outcome.status, outcome.data["data"]) == ("ok", None)


async def test_requests_go_through_the_proxy_the_environment_names(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted([answer("Content-Length: 2", body=b"hi")])
    async with serving(script) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        outcome = await run(caller, "http://elsewhere.invalid/x")

    assert outcome.data["data"] == "hi"
    assert script.requests[0].startswith(b"GET http://elsewhere.invalid/x HTTP/1.1\r\n")


@pytest.fixture
def own_certificate(tmp_path: Path) -> Callable[[], ssl.SSLContext]:
    """Make a certificate that nobody vouches for."""

    def make() -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        file = tmp_path / "both.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    return make


async def test_a_certificate_nobody_vouches_for_is_refused_unless_the_task_says_so(
    caller: Caller, own_certificate: Callable[[], ssl.SSLContext]
) -> None:
    script = Scripted([answer("Content-Length: 2", body=b"hi")])
    async with serving(script, own_certificate()) as url:
        problem = (await run(caller, url)).error
        outcome = await run(caller, url, verify_ssl=False)

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("connection", False)
    assert "the TLS connection is refused" in problem.message
    assert outcome.data["data"] == "hi"
