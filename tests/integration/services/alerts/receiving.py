"""Receivers of alerts for tests: a web server and a mail server on loopback, which keep what they are sent."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Receiver:
    """A web server: answers with the next of `answers`, with 200 once there are none."""

    url: str = ""
    answers: list[web.Response] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of what came, in its order."""
        return [headers["Idempotency-Key"] for headers, _ in self.got]

    async def handle(self, request: web.Request) -> web.Response:
        """Keep a request."""
        self.got.append((dict(request.headers), await request.read()))
        self.changed.set()
        return self.answers.pop(0) if self.answers else web.Response()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Give a web server for the time of the block."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    receiver.url = f"http://127.0.0.1:{port}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


class Letters:
    """A mail server's handler: keeps letters, and knows one user."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.got: list[tuple[Message, list[str], bool]] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Keep a letter, who gets it, and whether it came over TLS."""
        assert isinstance(envelope.content, bytes)
        self.got.append((message_from_bytes(envelope.content), envelope.rcpt_tos, session.ssl is not None))
        return "250 taken"

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, how: str, data: Any) -> AuthResult:
        """Let the one user in."""
        assert isinstance(data, LoginPassword)
        well = (data.login, data.password) == (b"ann", self.password.encode())
        return AuthResult(success=well, handled=well)


@asynccontextmanager
async def posting(letters: Letters, directory: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """Give the port of a mail server, which wants TLS and a login, and the trust that its certificate takes."""
    key, certificate = _certificate(directory)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    def protocol() -> SMTP:
        return SMTP(
            letters, tls_context=tls, require_starttls=True, auth_required=True,
            authenticator=letters.authenticate, hostname="localhost",
        )  # fmt: skip

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], ssl.create_default_context(cafile=str(certificate))
    finally:
        server.close()
        await server.wait_closed()


def _certificate(directory: Path) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "key.pem", directory / "certificate.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[0].write_bytes(key.private_bytes(pem, *plain))
    files[1].write_bytes(certificate.public_bytes(pem))
    return files
