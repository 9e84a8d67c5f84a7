"""Judges what an evaluation found against the alerts that stand: new ones are raised, those that are over are resolved.

Whoever judges the same again changes nothing. Of several at once, one raises each alert, and with it the messages to its
channels: both are written, or neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from noetl.errors import Conflict
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Transition
from noetl.language.alert.rule import Route, rank
from noetl.model.stream import Scope
from noetl.services.alerts.event_drafts import AlertWriting
from noetl.services.alerts.findings import COLUMNS, AlertRow, Found, Rules, alert_row

_TRIES: Final = 20
_OVER: Final = "the condition no longer holds"
_KNOWN: Final = f"SELECT {COLUMNS} FROM noetl.alert WHERE alert_id = ANY ($1::uuid[])"  # noqa: S608
_OPEN: Final = f"SELECT {COLUMNS} FROM noetl.alert WHERE rule = $1 AND owner = $2 AND part = $3 AND status = 'open'"  # noqa: S608


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of one rule."""

    rules: Rules
    evaluation: str
    found: Sequence[Found]
    holds: Collection[str] | None = None
    """Ids of alerts that still hold; those that were found, unless told."""
    part: str = ""
    seen_event_id: int = 0
    resolves: bool = True
    """Whether alerts of the rule that do not hold any more are resolved."""
    route: Route = Route()
    execution_id: int | None = None
    """The run that evaluates, if one does."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation came to."""

    raised: int
    resolved: int
    standing: tuple[AlertRow, ...]
    """The alerts of what was found, as they stand."""


class Judging:
    """Judges for all organizations of one database."""

    def __init__(self, database: Database, ledger: Ledger, writing: AlertWriting) -> None:
        self._database = database
        self._ledger = ledger
        self._writing = writing

    async def judge(self, scope: Scope, judgement: Judgement, kinds: Mapping[str, str]) -> Judged:
        """Raise and resolve what an evaluation calls for; `kinds` tells what each channel is."""
        raised = resolved = 0
        for _ in range(_TRIES):
            known, is_open = await self._read(scope, judgement)
            changes = [
                *(("raised", one) for one in self._to_raise(scope, judgement, known, kinds)),
                *(("resolved", one) for one in self._to_resolve(scope, judgement, is_open, kinds)),
            ]
            done = await asyncio.gather(*(self._write(change) for _, change in changes))
            raised += sum(well and word == "raised" for (word, _), well in zip(changes, done, strict=True))
            resolved += sum(well and word == "resolved" for (word, _), well in zip(changes, done, strict=True))
            if all(done):
                break
        else:
            raise Conflict(f"the alerts of {judgement.rules.owner} keep changing; they are judged again next time")
        known, _ = await self._read(scope, judgement)
        return Judged(raised=raised, resolved=resolved, standing=tuple(known.values()))

    async def _read(self, scope: Scope, judgement: Judgement) -> tuple[dict[str, AlertRow], list[AlertRow]]:
        rules = judgement.rules
        wanted = [rules.alert_id(one) for one in judgement.found]
        async with self._database.transaction(scope) as connection:
            known = await connection.fetch(_KNOWN, wanted) if wanted else []
            is_open = (
                await connection.fetch(_OPEN, rules.rule, rules.owner, judgement.part) if judgement.resolves else []
            )
        return {row["alert_id"]: alert_row(row) for row in known}, [alert_row(row) for row in is_open]

    def _to_raise(
        self, scope: Scope, judgement: Judgement, known: Mapping[str, AlertRow], kinds: Mapping[str, str]
    ) -> list[Transition]:
        changes = {}
        for found in judgement.found:
            alert_id = judgement.rules.alert_id(found)
            row = known.get(alert_id)
            if row is not None and not _is_news(row, found, judgement.seen_event_id):
                continue
            append, document = self._writing.raised(
                scope, judgement.rules, found, row, evaluation=judgement.evaluation, part=judgement.part,
                seen_event_id=judgement.seen_event_id, execution_id=judgement.execution_id,
            )  # fmt: skip
            told = self._writing.deliveries(
                scope, document, judgement.route, kinds, execution_id=append.drafts[0].execution_id,
                expires_seconds=judgement.route.max_delivery_age,
            )  # fmt: skip
            changes[alert_id] = Transition((append, *told))
        return list(changes.values())

    def _to_resolve(
        self, scope: Scope, judgement: Judgement, is_open: Sequence[AlertRow], kinds: Mapping[str, str]
    ) -> list[Transition]:
        holds = judgement.holds
        if holds is None:
            holds = {judgement.rules.alert_id(one) for one in judgement.found}
        changes = []
        for row in is_open:
            if row.alert_id in holds or row.seen_event_id > judgement.seen_event_id:
                continue
            append, document = self._writing.resolved(
                scope, row, _OVER, evaluation=judgement.evaluation, seen_event_id=judgement.seen_event_id
            )
            told = self._writing.deliveries(
                scope, document, judgement.route, kinds, execution_id=append.drafts[0].execution_id,
                expires_seconds=judgement.route.max_delivery_age,
            )  # fmt: skip
            changes.append(Transition((append, *told)))
        return changes

    async def _write(self, change: Transition) -> bool:
        reach("alert.before_record")
        try:
            await self._ledger.transact(change)
        except Conflict:
            return False
        reach("alert.after_record")
        return True


def _is_news(row: AlertRow, found: Found, seen_event_id: int) -> bool:
    if row.seen_event_id > seen_event_id:
        return False
    if row.status == "open":
        return rank(found.severity) > rank(row.severity)
    return not found.once
