"""A ledger in which several tenants ran, failed and worked: what curated views are read from in tests."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue.queries import CuratedEngine
from noetl.model.event import Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.services.curated.on_postgres import InPostgres
from noetl.services.curated.reads import CuratedReads, Grouping
from noetl.services.curated.registry import CuratedViews
from noetl.services.curated.view import CuratedView
from noetl.testing.samples.drafts import PRODUCER, Drafts

IDS = SnowflakeGenerator(9, lambda: time.time_ns() // 1_000_000)
OPERATORS = Scope("platform", "operators")
TENANTS = tuple(Scope(f"tenant-{number}", "main") for number in range(6))
LONER = Scope("loner", "main")
SECRETS = ("loner", "tenant-", "Tübingen", "platform", "the disk of")
"""What no answer may hold."""


async def populate(ledger: PostgresLedger, now: datetime) -> None:
    """Let six tenants do alike."""
    changes = []
    for place, scope in enumerate(TENANTS):
        changes += _ran(scope, now, "playbook.completed", seconds=[0.05, 2.5, 2.5 + place])
        changes += _ran(scope, now - timedelta(days=1), "playbook.failed", seconds=[30, 30])
        changes += _failed(scope, now, "timeout", "the disk of Tübingen is full", times=2)
        changes += _worked(scope, now, rows=[400, 700 + place])
    await _append(ledger, changes)


async def add_loner(ledger: PostgresLedger, now: datetime) -> None:
    """Let a seventh tenant do what no other does."""
    changes = _ran(LONER, now, "execution.cancelled", seconds=[1] * 20)
    changes += _failed(LONER, now, "secret", "only the loner knows this", times=30)
    changes += _worked(LONER, now, rows=[50_000_000])
    await _append(ledger, changes)


def reads(
    database: Database,
    ledger: PostgresLedger,
    now: datetime,
    *own: CuratedView,
    engines: dict[CuratedEngine, Grouping] | None = None,
) -> CuratedReads:
    """Return what reads curated views at an instant."""
    known: dict[CuratedEngine, Grouping] = {"postgres": InPostgres(database, 60), **(engines or {})}
    return CuratedReads(database, ledger, CuratedViews(own), known, IDS.mint_many, PRODUCER, now=lambda: now)


def noon() -> datetime:
    """Return the middle of this day, so that no test meets midnight."""
    return datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def _ran(scope: Scope, end: datetime, how: str, seconds: list[float]) -> list[Append]:
    found = []
    for taken in seconds:
        drafts, run = Drafts(scope, IDS.mint), IDS.mint()
        began = drafts.execution(run, "playbook.initialized", event_time=end - timedelta(seconds=taken))
        found.append(Append(began.stream, [began, drafts.execution(run, how, event_time=end)]))
    return found


def _failed(scope: Scope, at: datetime, kind: str, error: str, times: int) -> list[Append]:
    drafts, run = Drafts(scope, IDS.mint), IDS.mint()
    result = {"status": "error", "error": {"kind": kind, "message": error}}
    return [
        _alone(drafts.command(run, f"c{number}", "command.failed", error=error, result=result, event_time=at))
        for number in range(times)
    ]


def _worked(scope: Scope, at: datetime, rows: list[int]) -> list[Append]:
    drafts, run, stage = Drafts(scope, IDS.mint), IDS.mint(), IDS.mint()
    found = []
    for count in rows:
        meta, ref = {"attempt": 1, "row_count": count}, drafts.payload(bytes=count * 10)
        found.append(
            _alone(drafts.frame(run, stage, IDS.mint(), "frame.committed", meta=meta, payload_ref=ref, event_time=at))
        )
    return found


def _alone(draft: Draft) -> Append:
    return Append(draft.stream, [draft])


async def _append(ledger: PostgresLedger, changes: list[Append]) -> None:
    by_scope: dict[Scope, list[Append]] = {}
    for one in changes:
        by_scope.setdefault(one.stream.scope, []).append(one)
    for appends in by_scope.values():
        await ledger.transact(Transition(tuple(appends)))
