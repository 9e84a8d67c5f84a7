"""The operator alert_route: rows about alerts become messages for channels, one for each alert and channel. Sends nothing.

Config: `channels`, `min_severity`, `max_delivery_age`. Rows that are read again make no second message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from noetl.errors import Conflict
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.language.alert.rule import Route, route_of
from noetl.model.catalogue.alerts import SEVERITIES
from noetl.model.event import time_text
from noetl.model.ids import uuid5_of
from noetl.model.stream import Scope
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.worker.in_process import OperatorFailed, Produced
from noetl.services.alerts.applied_rules import AppliedRules, kinds_of
from noetl.services.alerts.event_drafts import AlertWriting
from noetl.spark.drivers.protocol import Work

_NEEDED: Final = ("key", "severity", "title", "event_id", "at")
SCHEMA: Final = pa.schema(
    [("delivery_id", pa.string()), ("key", pa.string()), ("event_id", pa.string()), ("channel", pa.string())]
)


class AlertRoute:
    """Routes the alerts of jobs."""

    def __init__(
        self,
        scope: Scope,
        ledger: Ledger,
        writing: AlertWriting,
        applied: AppliedRules,
        reader: TableReader,
    ) -> None:
        self._scope = scope
        self._ledger = ledger
        self._writing = writing
        self._applied = applied
        self._reader = reader

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Make the messages that are not there yet."""
        route, kinds = route_of(work.grant.config), kinds_of(await self._applied.channels(self._scope))
        for name in route.channels:
            if name not in kinds:
                raise OperatorFailed(
                    f"there is no channel {name}: apply a file of alerts that declares it, then retry the task",
                    retryable=False,
                )
        now, skipped = datetime.now(UTC), 0
        appends: list[Append] = []
        for one in work.grant.inputs:
            table = await self._reader.read(work, one)
            missing = [name for name in _NEEDED if name not in table.column_names]
            if missing:
                raise OperatorFailed(f"input {one.alias} has no column {missing[0]}", retryable=False)
            for row in table.to_pylist():
                left = _left(row, route, now)
                if left is not None and left <= 0:
                    skipped += 1
                    continue
                appends += self._writing.deliveries(
                    self._scope, _document(row), route, kinds, execution_id=work.grant.execution_id,
                    expires_seconds=left,
                )  # fmt: skip
        made = sum(await asyncio.gather(*(self._write(append) for append in appends)))
        metrics = {"messages": len(appends), "made": made, "too_old": skipped}
        tables = {0: _table(appends)} if work.grant.targets else {}
        return Produced(tables=tables, metrics=metrics, log=f"{metrics}\n")

    async def _write(self, append: Append) -> bool:
        reach("alert.before_record")
        try:
            await self._ledger.transact(Transition((append,)))
        except Conflict:
            return False  # the message is there already
        reach("alert.after_record")
        return True


def _left(row: Mapping[str, Any], route: Route, now: datetime) -> float | None:
    """Return how many seconds a row may still wait to be sent; None if for ever."""
    at = row["at"]
    if route.max_delivery_age is None or at is None:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return route.max_delivery_age - float((now - at).total_seconds())


def _document(row: Mapping[str, Any]) -> dict[str, Any]:
    severity = str(row["severity"])
    if severity not in SEVERITIES:
        raise OperatorFailed(f"a row has the severity {severity[:40]!r}", retryable=False)
    at = row["at"]
    key = str(row["key"])
    return {
        "alert_id": str(row.get("alert_id") or uuid5_of("alert", key)),
        "alert_key": key,
        **{name: str(row.get(name) or "") for name in ("rule", "subject", "title", "message")},
        "severity": severity,
        "execution_id": None,
        "state": "raised",
        "event_id": str(row["event_id"]),
        "at": None if at is None else time_text(at if at.tzinfo is not None else at.replace(tzinfo=UTC)),
    }


def _table(appends: list[Append]) -> pa.Table:
    drafts = [append.drafts[0] for append in appends]
    rows = [
        {
            "delivery_id": draft.meta["delivery_id"],
            "key": draft.context["document"]["alert_key"],
            "event_id": draft.context["document"]["event_id"],
            "channel": draft.meta["channel"],
        }
        for draft in drafts
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
