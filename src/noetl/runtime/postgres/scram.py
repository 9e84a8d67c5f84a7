"""The client's side of SCRAM-SHA-256 (RFC 7677): a password goes in, the messages that prove it come out.

Both sides are proven: a server that does not know the password is refused, so nobody can stand in for ours on its socket.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

MECHANISM = "SCRAM-SHA-256"
_NO_BINDING = "n,,"


class UnprovenError(Exception):
    """The other side does not know the password, or speaks no SCRAM that we know."""


class Scram:
    """One exchange."""

    def __init__(self, password: str) -> None:
        self._password = password
        self._nonce = secrets.token_urlsafe(18)
        self._expected = b""

    @property
    def first(self) -> bytes:
        """The first message. PostgreSQL takes the user's name from the start of the connection, not from here."""
        return f"{_NO_BINDING}{self._bare}".encode()

    @property
    def _bare(self) -> str:
        return f"n=,r={self._nonce}"

    def final(self, challenge: bytes) -> bytes:
        """Answer the server's challenge with the proof."""
        fields = _fields(challenge)
        nonce, rounds = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or not rounds.isdigit() or int(rounds) < 1:
            raise UnprovenError("the server's challenge cannot be answered")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), _bytes(fields, "s"), int(rounds))
        key = _mac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        exchange = b",".join((self._bare.encode(), challenge, without_proof.encode()))
        signature = _mac(hashlib.sha256(key).digest(), exchange)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        self._expected = _mac(_mac(salted, b"Server Key"), exchange)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, outcome: bytes) -> None:
        """Refuse a server that could not sign the exchange."""
        if not self._expected or not hmac.compare_digest(_bytes(_fields(outcome), "v"), self._expected):
            raise UnprovenError("the server does not know its own password")


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode(errors="replace").split(",")}


def _bytes(fields: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(fields.get(name, ""), validate=True)
    except ValueError:
        raise UnprovenError("the server's challenge cannot be read") from None
