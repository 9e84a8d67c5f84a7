"""A ground for every test: its own database, an engine that only asks, and no process left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.faults.engine.engine_testbed import SCOPED, TABLES, Ground

from noetl.testing.engines.short_leases import open_short_leased


@pytest.fixture
async def ground(owner_url: str, tmp_path: Path) -> AsyncIterator[Ground]:
    """The test's ground."""
    home = tmp_path / "home"
    home.mkdir()
    async with open_short_leased(owner_url, home) as driven:
        effects = await asyncpg.connect(owner_url, server_settings=SCOPED)
        await effects.execute(TABLES)
        ground = Ground(owner_url, home, driven, effects)
        yield ground
        ground.close()
        await effects.close()
