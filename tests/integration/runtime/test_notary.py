"""The notary as a process has it: it signs by itself, to where the settings say, unless that is left to others."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.metrics.notary import NotaryMetrics
from noetl.runtime.notary import notary_of, open_notary
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

IDS = SnowflakeGenerator(37, lambda: time.time_ns() // 1_000_000)


def runtime_of(database: Database, **heads: Any) -> Runtime:
    settings = Settings.model_validate({"runtime": {"home": str(heads.pop("home"))}, "event_store": {"heads": heads}})
    return cast(Runtime, SimpleNamespace(settings=settings, database=database))


async def test_heads_are_signed_by_a_server_unless_that_is_left_to_a_notary(
    database: Database, ledger: PostgresLedger, tmp_path: Path
) -> None:
    """INV-206."""
    drafts = Drafts(Scope("acme", "care"), IDS.mint)
    items = drafts.loop_items(drafts.mint(), drafts.mint(), 3)
    await ledger.append(items[0].stream, items)

    def signing() -> bool:
        return any(task.get_name() == "noetl-notary" for task in asyncio.all_tasks())

    async with open_notary(runtime_of(database, home=tmp_path, in_server=False)):
        assert not signing()
    async with open_notary(runtime_of(database, home=tmp_path)):
        assert signing()
    assert not signing()

    place = tmp_path / "elsewhere"
    (head,) = await (await notary_of(runtime_of(database, home=tmp_path, path=str(place)))).round()
    assert head.size == 3
    key = tmp_path / "keys" / "notary.key"
    assert key.stat().st_mode & 0o777 == 0o600
    (file,) = place.glob("*.jsonl")
    assert '"size":3' in file.read_text()


class Watched(NotaryMetrics, logging.Handler):
    """Says when a round is over, and when the log has a failure."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        NotaryMetrics.__init__(self, self.registry)
        logging.Handler.__init__(self)
        self.ended, self.failed = asyncio.Event(), asyncio.Event()

    def refused(self, shards: int) -> None:
        super().refused(shards)
        self.ended.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.failed.set()

    def shown(self) -> float | None:
        return self.registry.get_sample_value("noetl_notary_refused_shards")


async def test_whatever_goes_wrong_in_a_round_the_next_is_tried(
    database: Database, ledger: PostgresLedger, tmp_path: Path
) -> None:
    """INV-206."""
    drafts = Drafts(Scope("acme", "care"), IDS.mint)
    items = drafts.loop_items(drafts.mint(), drafts.mint(), 3)
    await ledger.append(items[0].stream, items)
    file = tmp_path / "heads" / f"{await Trees(database).ledger()}.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe no text at all")
    watched, log = Watched(), logging.getLogger("noetl.runtime.notary")
    log.addHandler(watched)
    try:
        async with asyncio.timeout(30), open_notary(runtime_of(database, home=tmp_path, every_seconds=1), watched):
            await watched.failed.wait()
            file.unlink()
            await watched.ended.wait()
            assert '"size":3' in file.read_text()
            assert watched.shown() == 0
            async with database.transaction(None, "projector") as connection:
                await connection.execute(
                    "INSERT INTO noetl.ledger_head VALUES ($1, 99, '{}', now())", items[0].stream.shard
                )
            while watched.shown() != 1:
                watched.ended.clear()
                await watched.ended.wait()
    finally:
        log.removeHandler(watched)
