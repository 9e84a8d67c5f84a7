"""A process killed while it archives: the next run completes, nothing stands twice, and history reads as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from noetl.kernel.ledger.archive.deletion import event_partitions
from noetl.kernel.ledger.archive.manifest import decode_manifest
from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.model.event import to_json
from noetl.model.ids import SnowflakeGenerator, snowflake_at
from noetl.model.stream import Scope, loop_stream
from noetl.testing.contracts.ledger.event_lists import read, read_execution
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.fault]

SCOPE = Scope("acme", "care")
NOW = datetime(2026, 6, 15, tzinfo=UTC)
IDS = SnowflakeGenerator(8, lambda: time.time_ns() // 1_000_000)

RETAIN = """
import asyncio, sys, time
from datetime import UTC, datetime
from pathlib import Path
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.archive.retention import retain
from noetl.model.ids import SnowflakeGenerator
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore

async def main(url, directory):
    database = Database(url, as_roles=True)
    ids = SnowflakeGenerator(9, lambda: time.time_ns() // 1_000_000)
    await retain(database, PostgresLedger(database), ObjectPayloadStore(LocalBucket(Path(directory)), compress=True),
                 mint=ids.mint, keep_months=1, now=datetime(2026, 6, 15, tzinfo=UTC))

asyncio.run(main(*sys.argv[1:]))
"""


def retain_in_a_process(url: str, directory: Path, fault: str) -> int:
    """Run retention in a process of its own with a fault armed and return its exit status."""
    environment = {**os.environ, "NOETL_FAULT": fault}
    arguments = [sys.executable, "-c", RETAIN, url, str(directory)]
    return subprocess.run(arguments, env=environment, timeout=60, check=False).returncode


@pytest.mark.parametrize(
    "point", ["externalize.after_store", "archive.after_objects", "append.after_heads", "archive.after_manifest"]
)
async def test_a_killed_archive_is_completed_by_the_next_run(
    owner_url: str, database: Database, ledger: PostgresLedger, tmp_path: Path, point: str
) -> None:
    drafts = Drafts(SCOPE, IDS.mint)
    runs = [snowflake_at(datetime(2026, 1, day, tzinfo=UTC)) for day in (3, 9, 27)]
    for run in runs:
        loop = drafts.mint()
        await ledger.append(drafts.execution(run).stream, [drafts.execution(run)])
        await ledger.append(loop_stream(SCOPE, run, loop), drafts.loop_items(run, loop, 40))
        ending = drafts.execution(run, "playbook.completed")
        await ledger.append(ending.stream, [ending])
    before = [[to_json(event) for event in await read_execution(ledger, SCOPE, run)] for run in runs]
    async with database.transaction(None, "projector") as connection:
        await connection.execute("UPDATE noetl.projection_checkpoint SET position = 1000000")

    assert retain_in_a_process(owner_url, tmp_path, f"{point}=kill") == -signal.SIGKILL
    assert "event_2026_01" in [month.name for month in await event_partitions(database)]

    store = ObjectPayloadStore(LocalBucket(tmp_path), compress=True)
    report = await retain(database, ledger, store, mint=IDS.mint, keep_months=1, now=NOW)
    assert [(one.partition, one.action, one.events) for one in report.partitions] == [("event_2026_01", "dropped", 126)]
    history = History(database, ledger, store)
    after = [[to_json(event) for event in await read_execution(history, SCOPE, run)] for run in runs]
    assert after == before
    (recorded,) = await read(ledger, SCOPE.stream("retention/event_2026_01"))
    assert recorded.payload_ref is not None
    manifest = decode_manifest(await store.fetch(SCOPE, recorded.payload_ref))
    stored = {found.sha256 async for found in store.objects(SCOPE)}
    assert stored == {recorded.payload_ref.sha256, *(found.ref.sha256 for found in manifest.objects)}
