"""A testbed for every test: its own database, an engine that only asks, and no process left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.faults.engine.engine_testbed import SCOPED, TABLES, EngineTestbed

from noetl.testing.engines.short_leases import open_short_leased


@pytest.fixture
async def testbed(owner_url: str, tmp_path: Path) -> AsyncIterator[EngineTestbed]:
    """The test's testbed."""
    home = tmp_path / "home"
    home.mkdir()
    async with open_short_leased(owner_url, home) as driven:
        effects = await asyncpg.connect(owner_url, server_settings=SCOPED)
        await effects.execute(TABLES)
        testbed = EngineTestbed(owner_url, home, driven, effects)
        yield testbed
        testbed.close()
        await effects.close()
