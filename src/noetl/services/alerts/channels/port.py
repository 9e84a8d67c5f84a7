"""What a channel promises: a message and how the channel was declared go in; it was taken, or `SendFailed` says why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.outgoing.guard import Reach

ALLOWED: Final = "allowed addresses"
"""Under this name, which no document can use, a sender adds what its settings allow to a channel."""

LONGEST_ATTEMPT: Final = 60.0
"""Seconds that one attempt takes at most."""


class SendFailed(NoetlError):
    """A message could not be handed over. `permanent` means that no further attempt can succeed."""

    code = "send_failed"
    disposition = "transient"

    def __init__(self, message: str, *, permanent: bool = False, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.after_seconds = after_seconds
        """How long the other side asks to wait at least."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What people are told about an alert."""

    delivery_id: str
    """The same in every attempt: receivers that have seen it need not take it again."""
    tenant_id: str
    organization_id: str
    attempt: int
    alert: dict[str, Any]

    @property
    def headline(self) -> str:
        """What it is about, in one line."""
        state = "" if self.alert["state"] == "raised" else f" {self.alert['state']}"
        return " ".join(f"[{self.alert['severity']}{state}] {self.alert['title']}".split())

    @property
    def text(self) -> str:
        """The rest, line by line."""
        told = [
            ("", self.alert.get("message")),
            ("rule: ", self.alert.get("rule")),
            ("subject: ", self.alert.get("subject")),
            ("execution: ", self.alert.get("execution_id")),
            ("organization: ", self.organization_id),
            ("at: ", self.alert.get("at")),
        ]
        return "\n".join(f"{name}{value}" for name, value in told if value)


class Channel(Protocol):
    """One way to reach people."""

    async def send(self, message: Message, declared: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
        """Hand a message over, once; `secret` is what the channel's credential holds. Errors never show it."""
        ...


def reach_of(declared: Mapping[str, Any]) -> Reach:
    """Return where a channel may be; the sender has put in what its settings allow."""
    return Reach(
        private=bool(declared.get("allow_private")),
        allowed=tuple(declared.get(ALLOWED, ())),
        setting="outgoing.allowed, or alerts.allow_private for channels with allow_private: true",
    )


def timeout_of(declared: Mapping[str, Any]) -> float:
    """Return how many seconds one attempt may take."""
    from noetl.language.dag.times import seconds_of

    # Channels that were applied before there was a bound may have more.
    return min(seconds_of(str(declared.get("timeout", "10s"))), LONGEST_ATTEMPT)


def first_of(secret: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these fields that a credential has."""
    return next((str(secret[name]) for name in names if secret.get(name)), None)
