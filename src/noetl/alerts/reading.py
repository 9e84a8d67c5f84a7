"""Alerts for people: listed, and shown one by one. Nothing is written."""

from __future__ import annotations

from typing import Final

from noetl.alerts.found import COLUMNS, AlertRow, alert_row
from noetl.errors import InputError, NotFound
from noetl.ledger.database import Database
from noetl.model.stream import Scope

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
