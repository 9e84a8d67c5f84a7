"""Sends alerts by mail: over STARTTLS or TLS with the server's name checked, logged in where the channel has a credential."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import EmailMessage
from typing import Any

from noetl.alerts.channels.port import Message, SendFailed, first_of, reach_of, timeout_of
from noetl.errors import Unavailable
from noetl.outgoing.reach import Address, AddressRefused


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

        def hand_over() -> None:
            with _client([str(one) for one in known], host, port, timeout_of(declared), self._tls(), safety) as client:
                if safety == "starttls":
                    client.starttls(context=self._tls())
                if user is not None:
                    client.login(user, password or "")
                client.send_message(letter)

        try:
            await asyncio.to_thread(hand_over)
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


def _client(
    addresses: list[str], host: str, port: int, timeout: float, tls: ssl.SSLContext, safety: str
) -> smtplib.SMTP:
    def connect(chosen: int, seconds: float) -> socket.socket:
        for address in addresses[:-1]:
            with suppress(OSError):
                return socket.create_connection((address, chosen), seconds)
        return socket.create_connection((addresses[-1], chosen), seconds)

    class Plain(smtplib.SMTP):
        """Connects to an address that was judged; names are checked against the host."""

        def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
            return connect(port, timeout)

    class Safe(smtplib.SMTP_SSL):
        """The same, with TLS from the first byte."""

        def _get_socket(self, host: str, port: int, timeout: float) -> ssl.SSLSocket:
            return self.context.wrap_socket(connect(port, timeout), server_hostname=host)

    own = socket.gethostname()
    if safety == "tls":
        return Safe(host, port, own, timeout=timeout, context=tls)
    return Plain(host, port, own, timeout=timeout)
