"""A projector lives through a restart of PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.samples.projected_ledger import HOME, a_run, pure_rows, record, stored_rows

pytestmark = [pytest.mark.service, pytest.mark.fault]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path / "home")
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(migrations.upgrade, server.url())
    yield server
    await asyncio.to_thread(server.destroy)


async def test_a_projector_goes_on_after_the_server_was_restarted(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(server.url(), as_roles=True)
    ledger, store = PostgresLedger(database), PostgresProjectionStore(database)
    batch, waiting = asyncio.Event(), asyncio.Event()

    async def note(shard: int, events: list[Event]) -> None:
        batch.set()

    async def until(mark: Mark) -> None:
        async with asyncio.timeout(40):
            while not (await store.checkpoints()).covers(mark):
                await batch.wait()
                batch.clear()

    class Told(logging.Handler):
        def emit(self, entry: logging.LogRecord) -> None:
            if vars(entry).get("action") == "projector.waiting":
                waiting.set()

    caplog.set_level(logging.INFO, "noetl.projector")
    logging.getLogger("noetl.projector").addHandler(told := Told())
    listen = lambda: listening(database, "projector", 0.2)  # noqa: E731 - the projector opens it again and again
    projector = Projector(ledger, store, FoldRegistry(), Upcasters(), listen=listen, on_batch=note)
    await projector.start()
    await record(ledger, a_run(HOME))
    await until(await ledger.head())

    await asyncio.to_thread(server.stop)
    async with asyncio.timeout(40):
        await waiting.wait()
    await asyncio.to_thread(server.start)
    await record(ledger, a_run(HOME))
    await until(await ledger.head())
    await projector.stop()
    logging.getLogger("noetl.projector").removeHandler(told)

    assert await stored_rows(store) == await pure_rows(ledger, built_in_folds())
    actions = [vars(entry)["action"] for entry in caplog.records if vars(entry).get("concerns") == "database"]
    assert actions == ["projector.waiting", "projector.recovered"]
    await ledger.close()
    await database.close()
