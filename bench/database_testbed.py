"""The testbed all database figures are measured on: an embedded server of its own with its shipped, durable settings."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import orjson

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.envelope.columns import EVENT_COLUMNS
from noetl.model.event import JSON_FIELDS, Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.samples.drafts import Drafts

SCOPE = Scope("default", "default")
FLOOR_SHARD = 99
"""A shard no append uses, so that bare inserts can number their rows themselves."""

BARE_INSERT = "INSERT INTO noetl.event ({}) SELECT * FROM unnest({})".format(
    ", ".join(column.name for column in EVENT_COLUMNS),
    ", ".join(f"${column.number}::{column.sql}[]" for column in EVENT_COLUMNS),
)


class DatabaseTestbed:
    """A fresh database with a ledger on it and a bare connection beside it."""

    def __init__(
        self, server: EmbeddedServer, database: Database, ledger: PostgresLedger, bare: asyncpg.Connection
    ) -> None:
        self.server = server
        self.database = database
        self.ledger = ledger
        self.bare = bare
        self.ids = SnowflakeGenerator(3, lambda: time.time_ns() // 1_000_000)
        self.drafts = Drafts(SCOPE, self.ids.mint)
        self._position = 0

    def bare_columns(self, drafts: Sequence[Draft]) -> list[list[object]]:
        """Lay drafts out for `insert_bare`, so that the floor is the insert alone and not the making of its rows."""
        return [list(column) for column in zip(*map(self._bare_row, drafts), strict=True)]

    async def insert_bare(self, columns: list[list[object]]) -> None:
        """Write rows the way a program without a ledger would: one multi-row insert, autocommit."""
        await self.bare.execute(BARE_INSERT, *columns)

    def _bare_row(self, draft: Draft) -> tuple[object, ...]:
        self._position += 1
        given = {
            "position": self._position,
            "stream_version": self._position,
            "ingest_time": draft.event_time,
            "shard": FLOOR_SHARD,
            "payload_sha256": None,
            "fields_sha256": None,
        }
        row = []
        for column in EVENT_COLUMNS:
            value = given[column.name] if column.name in given else getattr(draft, column.name)
            if column.name in JSON_FIELDS:
                value = orjson.dumps(value).decode() if value else None
            row.append(value)
        return tuple(row)


def folder_for_server() -> Path:
    """Make a folder that another account may enter: run by root, the server has one."""
    folder = Path(tempfile.mkdtemp(prefix="noetl-bench-"))
    folder.chmod(0o755)
    return folder


@asynccontextmanager
async def open_database_testbed() -> AsyncIterator[DatabaseTestbed]:
    """Give a fresh testbed and remove it afterwards."""
    folder = folder_for_server()
    server = EmbeddedServer(folder / "home")
    try:
        with server:
            migrations.upgrade(server.url())
            database = Database(server.url(), as_roles=True)
            ledger = PostgresLedger(database)
            # The owner may insert; the policies bind it to the tenant like everybody else.
            bare = await asyncpg.connect(
                server.url(),
                server_settings={"noetl.tenant": SCOPE.tenant_id, "noetl.organization": SCOPE.organization_id},
            )
            yield DatabaseTestbed(server, database, ledger, bare)
            await bare.close()
            await ledger.close()
            await database.close()
    finally:
        server.destroy()
        shutil.rmtree(folder)
