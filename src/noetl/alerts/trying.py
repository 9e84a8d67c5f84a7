"""Tries a channel out: a message that says so is made, to be sent as any other."""

from __future__ import annotations

from collections.abc import Callable

from noetl.alerts.applied import AppliedRules
from noetl.alerts.writing import AlertWriting, delivery_id_of
from noetl.errors import NotFound
from noetl.ledger.port import Ledger
from noetl.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.model.ids import snowflake_time, uuid5_of
from noetl.model.stream import Scope

_SECONDS = 300.0
"""A test that was not sent within this time is of no use any more."""


class Trying:
    """Makes test messages of one process."""

    def __init__(self, applied: AppliedRules, writing: AlertWriting, ledger: Ledger, mint: Callable[[], int]) -> None:
        self._applied = applied
        self._writing = writing
        self._ledger = ledger
        self._mint = mint

    async def make(self, scope: Scope, channel: str) -> str:
        """Make a test message for a channel and return its id; a sender takes it from there."""
        channels = await self._applied.channels(scope)
        if channel not in channels:
            known = ", ".join(sorted(channels)) or "none yet"
            raise NotFound(
                f"there is no channel {channel}", hint=f"known: {known}; `noetl alerts apply FILE` declares them"
            )
        event_id = self._mint()
        document = {
            "alert_id": str(uuid5_of("test", channel)),
            "alert_key": f"test:{channel}",
            "rule": "test",
            "severity": "info",
            "subject": channel,
            "title": f"test of the channel {channel}",
            "message": "somebody asked for this message; nothing is wrong",
            "execution_id": None,
            "state": "test",
            "event_id": str(event_id),
            "at": time_text(snowflake_time(event_id)),
        }
        kind = str(channels[channel]["kind"])
        append = self._writing.delivery(scope, document, channel, kind, execution_id=None, expires_seconds=_SECONDS)
        await self._ledger.transact(Transition((append,)))
        return delivery_id_of(scope, document, channel)
