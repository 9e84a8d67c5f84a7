"""A process that should bring writes to the stream and knows none: it refuses them, says why, and goes on when it can."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path import watch
from noetl.runtime.write_path.choice import refusal_of
from noetl.runtime.write_path.watch import watching
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

IDS = SnowflakeGenerator(6, lambda: time.time_ns() // 1_000_000)
HOME = Scope("acme", "care")
DRAFTS = Drafts(HOME, IDS.mint)


async def append(ledger: PostgresLedger) -> None:
    """Append an event by itself."""
    draft = DRAFTS.business("business/thing", IDS.mint())
    await ledger.append(draft.stream, [draft])


async def transact(ledger: PostgresLedger) -> None:
    """Record a change of open work."""
    draft = DRAFTS.business("business/thing", IDS.mint())
    await ledger.transact(Transition((Append(draft.stream, [draft]),)))


async def decide(ledger: PostgresLedger) -> None:
    """Record an event within a transaction of the caller's own."""
    draft = DRAFTS.business("business/thing", IDS.mint())
    async with ledger.decision(HOME) as decision:
        await decision.append(draft.stream, [draft])


async def waiting(database: Database) -> int:
    """Return how many events wait for the materializer."""
    async with database.transaction(None, "relay") as connection:
        return int(await connection.fetchval("SELECT count(*) FROM noetl.pending_event"))


@pytest.mark.parametrize("write", [append, transact, decide])
async def test_whatever_would_wait_is_refused_at_once_and_taken_when_the_way_is_back(
    database: Database, ledger: PostgresLedger, write: Callable[[PostgresLedger], Awaitable[None]]
) -> None:
    """INV-136."""
    ledger.way.refusal = refusal_of(Settings())
    await write(ledger)
    other = PostgresLedger(database)
    await WritePathChange(database, other.way).to("stream")
    for _ in range(2):  # before the process has noticed the change, and after
        with pytest.raises(Unavailable, match=r"event_store\.distribution_backend is postgres") as refused:
            await write(ledger)
        assert "event_store.connection.url" in str(refused.value.hint)
    assert await waiting(database) == 0
    await WritePathChange(database, other.way).to("ledger")
    await write(ledger)
    await other.close()


@pytest.mark.parametrize("knows_a_stream", [True, False])
async def test_a_process_that_runs_tells_each_change_once(
    owner_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    knows_a_stream: bool,
) -> None:
    """INV-136."""
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.02)
    settings = Settings.model_validate({"runtime": {"home": str(tmp_path)}, "database": {"url": owner_url}})

    def said(level: int) -> list[str]:
        return [entry.getMessage() for entry in caplog.records if entry.levelno == level]

    async def told(warnings: int) -> bool:
        return len(said(logging.WARNING)) == warnings

    async with open_runtime(settings) as runtime, open_runtime(settings) as other, watching(runtime):
        runtime.ledger.way.refusal = None if knows_a_stream else refusal_of(settings)
        changes = WritePathChange(other.database, other.ledger.way)
        await changes.to("stream")
        await until(lambda: told(1), "the change to the stream being told")
        await changes.to("ledger")
        await until(lambda: told(2), "the change back being told")
    there, back = said(logging.WARNING)
    assert there.startswith("the write path is now stream (was ledger); this process is set to ledger; ")
    assert "can lose up to two minutes of acknowledged facts" in there
    assert back == "the write path is now ledger (was stream); this process is set to ledger"
    errors = said(logging.ERROR)
    assert len(errors) == (0 if knows_a_stream else 1)
    for one in errors:
        assert "event_store.distribution_backend is postgres" in one
        assert "set event_store.distribution_backend to nats-jetstream and event_store.connection.url" in one
