"""The notary as a process has it: it signs by itself, to where the settings say, unless that is left to others."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.notary import notary_of, open_notary
from noetl.runtime.settings import Settings
from noetl.runtime.wiring import Runtime
from noetl.testing.drafts import Drafts

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
