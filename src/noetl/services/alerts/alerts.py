"""Alerts for people and for roles: database and ledger go in; lists of alerts, test messages and all parts come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from noetl.engine.catalog.evaluation import Evaluating as Beside
from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import time_text
from noetl.model.ids import snowflake_time, uuid5_of
from noetl.model.stream import Scope
from noetl.services.alerts.applied_rules import AppliedRules
from noetl.services.alerts.deliveries import Deliveries
from noetl.services.alerts.evaluation import Evaluating
from noetl.services.alerts.event_drafts import AlertWriting, delivery_id_of
from noetl.services.alerts.findings import COLUMNS, AlertRow, alert_row
from noetl.services.alerts.judgement import Judging


@dataclass(frozen=True)
class Alerts:
    """What one process does about alerts."""

    applied: AppliedRules
    reading: AlertsReading
    deliveries: Deliveries
    judging: Judging
    evaluating: Evaluating
    writing: AlertWriting
    trying: Trying


def connect_alerts(
    database: Database,
    ledger: Ledger,
    drafting: Drafting,
    mint: Callable[[], int],
    aside: Beside | None = None,
) -> Alerts:
    """Connect the parts; `aside` is where a process reads what users wrote, if it has such a place already."""
    writing = AlertWriting(drafting)
    applied = AppliedRules(database, ledger, drafting, aside or Beside())
    judging = Judging(database, ledger, writing)
    return Alerts(
        applied=applied,
        reading=AlertsReading(database),
        deliveries=Deliveries(database, ledger, writing),
        judging=judging,
        evaluating=Evaluating(database, applied, judging),
        writing=writing,
        trying=Trying(applied, writing, ledger, mint),
    )


_LIST: Final = f"""
SELECT {COLUMNS} FROM noetl.alert
WHERE ($1::text IS NULL OR status = $1) AND ($2::text IS NULL OR rule = $2) AND ($3::text IS NULL OR severity = $3)
  AND ($4::bigint IS NULL OR raised_event_id < $4)
ORDER BY raised_event_id DESC LIMIT $5
"""  # noqa: S608
_BEGINNING: Final = f"""
SELECT {COLUMNS} FROM noetl.alert WHERE starts_with(alert_id::text, $1) ORDER BY raised_event_id DESC LIMIT 5
"""  # noqa: S608


class AlertsReading:
    """The alerts of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def listed(
        self,
        scope: Scope,
        *,
        status: str | None = None,
        rule: str | None = None,
        severity: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[AlertRow]:
        """Return alerts, those raised last first; `before` is the `raised_event_id` of the last one seen."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_LIST, status, rule, severity, before, limit)
        return [alert_row(row) for row in rows]

    async def show(self, scope: Scope, text: str) -> AlertRow:
        """Return an alert by its id or the beginning of it, or the one raised last for `last`."""
        if text == "last":
            found = await self.listed(scope, limit=1)
        else:
            async with self._database.transaction(scope) as connection:
                rows = await connection.fetch(_BEGINNING, text.strip().lower()) if text.strip() else []
            found = [alert_row(row) for row in rows]
        if not found:
            which = "yet" if text == "last" else repr(text[:120])
            raise NotFound(f"there is no alert {which}", hint="`noetl alerts list` shows those there are")
        if len(found) > 1:
            ids = ", ".join(one.alert_id for one in found)
            raise InputError(f"several alerts begin with {text}", hint=f"{ids}: write more of it")
        return found[0]


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
