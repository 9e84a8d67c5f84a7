"""Sends alerts by mail: over STARTTLS or TLS with the server's name checked, logged in where the channel has a credential."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from typing import Any, Final

from noetl.errors import Unavailable
from noetl.kernel.outgoing.blocking_threads import waited
from noetl.kernel.outgoing.deadlines import Deadline, connected
from noetl.kernel.outgoing.guard import Address, AddressRefused
from noetl.model.stream import Scope
from noetl.services.alerts.channels.port import Message, SendFailed, first_of, reach_of, timeout_of

_LINES: Final = 100


class MailChannel:
    """Any SMTP server. The blocking client of the standard library runs in a thread."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._tls = tls

    async def send(self, message: Message, declared: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
        """Send one mail to all recipients."""
        safety = declared.get("security", "starttls")
        host, port = str(declared["host"]), int(declared.get("port") or (465 if safety == "tls" else 587))
        # The port is part of the protocol here; what matters is whose machine it is.
        known = await _judged(host, declared)
        letter = letter_of(message, str(declared["from"]), _listed(declared["to"]))
        user, password = first_of(secret, "username", "user"), first_of(secret, "password")
        if user is not None and safety == "none":
            raise SendFailed(f"no password is sent to {host} in the clear", permanent=True)

        seconds = timeout_of(declared)

        def hand_over() -> None:
            with (
                Deadline(seconds) as deadline,
                _client([str(one) for one in known], host, port, seconds, self._tls(), safety, deadline) as client,
            ):
                if safety == "starttls":
                    client.starttls(context=self._tls())
                if user is not None:
                    client.login(user, password or "")
                client.send_message(letter)

        try:
            await waited(Scope(message.tenant_id, message.organization_id), hand_over)
        except smtplib.SMTPResponseException as problem:
            permanent = problem.smtp_code in (550, 552, 554)
            raise SendFailed(f"{host} answered {problem.smtp_code}", permanent=permanent) from None
        except smtplib.SMTPRecipientsRefused as problem:
            codes = ", ".join(sorted({str(code) for code, _ in problem.recipients.values()}))
            raise SendFailed(f"{host} refuses every recipient ({codes})") from None
        except (smtplib.SMTPException, ssl.SSLError, OSError) as problem:
            raise SendFailed(f"{host} cannot be reached: {type(problem).__name__}") from None


async def _judged(host: str, declared: Mapping[str, Any]) -> list[Address]:
    try:
        return await reach_of(declared).resolved(host, 0)
    except AddressRefused as problem:
        raise SendFailed(f"{problem.message}; {problem.hint}", permanent=True) from None
    except Unavailable as problem:
        raise SendFailed(problem.message) from None


def letter_of(message: Message, sender: str, recipients: list[str]) -> EmailMessage:
    """Return a message as a mail; its id is the same in every attempt."""
    letter = EmailMessage()
    letter["Subject"] = message.headline
    letter["From"] = sender
    letter["To"] = ", ".join(recipients)
    letter["Message-ID"] = f"<{message.delivery_id}@noetl>"
    letter["Idempotency-Key"] = message.delivery_id
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(f"{message.headline}\n\n{message.text}\n")
    return letter


def _listed(written: str | list[str]) -> list[str]:
    return [written] if isinstance(written, str) else list(written)


class _Brief(smtplib.SMTP):
    """Takes replies of few lines: Python's own client gathers them for as long as more are announced."""

    def getreply(self) -> tuple[int, bytes]:
        """Read one reply."""
        assert self.sock is not None
        self.file = _Lines(self.sock.makefile("rb")) if self.file is None else self.file
        self.file.left = _LINES
        return super().getreply()


class _Lines:
    """What a server says, of which few lines are read at a time."""

    def __init__(self, said: Any) -> None:
        self._said = said
        self.left = 0

    def readline(self, most: int) -> bytes:
        """Read the next line, unless there were too many."""
        self.left -= 1
        if self.left < 0:
            raise OSError("the reply is too long")
        return bytes(self._said.readline(most))

    def close(self) -> None:
        """Read no more."""
        self._said.close()


def _client(
    addresses: list[str],
    host: str,
    port: int,
    timeout: float,
    tls: ssl.SSLContext,
    safety: str,
    deadline: Deadline,
) -> smtplib.SMTP:
    class Plain(_Brief, smtplib.SMTP):
        """Connects to an address that was judged; names are checked against the host."""

        def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
            return connected(addresses, port, timeout, deadline)

    class Safe(_Brief, smtplib.SMTP_SSL):
        """The same, with TLS from the first byte."""

        def _get_socket(self, host: str, port: int, timeout: float) -> ssl.SSLSocket:
            return self.context.wrap_socket(connected(addresses, port, timeout, deadline), server_hostname=host)

    own = socket.gethostname()
    if safety == "tls":
        return Safe(host, port, own, timeout=timeout, context=tls)
    return Plain(host, port, own, timeout=timeout)
