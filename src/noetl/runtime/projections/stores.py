"""Opens the projection stores that the settings name: the ledger's own database first, then those that stand by themselves.

A store that is away keeps nobody from starting: what it has waits, and the others go on.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.by_type import DEFAULT, StoredByType, StoreLine, by_store, of_store
from noetl.kernel.projections.stores.port import PayloadPlace
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.runtime.postgres.schema_check import check_schema
from noetl.runtime.settings.declaration import Settings

_log = logging.getLogger(__name__)


async def open_stores(
    settings: Settings,
    database: Database,
    folds: FoldRegistry,
    place: PayloadPlace,
    stack: AsyncExitStack,
    only: Role | None = None,
) -> StoredByType:
    """Return the stores with the folds of each; they are closed with the stack. `only` is the role of the process."""
    named = {name: store for name, store in settings.projection_stores.items() if store.connection.dsn is not None}
    wanted = {name: settings.projection_stores[name].projections for name in (DEFAULT, *named)}
    held = by_store(folds, wanted)
    lines = [StoreLine(DEFAULT, PostgresProjectionStore(database, place), held[DEFAULT])]
    for name, store in named.items():
        if name == DEFAULT:
            continue
        assert store.connection.dsn is not None
        own = Database(
            store.connection.dsn.get_secret_value(),
            pool_min=settings.database.pool_min,
            only=only,
            pool_max=settings.database.pool_max,
            idle_in_transaction_seconds=settings.database.idle_in_transaction_seconds,
        )
        stack.push_async_callback(own.close)
        if only in (None, "projector"):
            await _check(name, own)
        lines.append(StoreLine(name, PostgresProjectionStore(own), held[name]))
    return StoredByType(lines)


async def _check(name: str, database: Database) -> None:
    try:
        with of_store(name):
            await check_schema(database, None, f"run `noetl db migrate --store {name}`")
    except Unavailable as problem:
        _log.warning("what it has waits: %s", problem.message)
