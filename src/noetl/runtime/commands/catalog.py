"""What `noetl catalog` opens: the catalog of playbooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.catalog.playbooks import Catalog
    from noetl.model.stream import Scope


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Catalog, Scope]]:
    """Give the catalog and the organization the settings name, for the time of the block."""
    from noetl.runtime.config import load_settings
    from noetl.runtime.engine import catalog_of
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        yield catalog_of(runtime, "catalog"), runtime.scope
