"""A projector killed at any point leaves rows and checkpoint together, and the next one goes on as if nothing was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.stream import execution_stream
from noetl.testing.samples.projected_ledger import HOME, a_run, pure_rows, record, stored_rows

pytestmark = [pytest.mark.service, pytest.mark.fault]

POINTS = ("project.before_rows", "project.after_rows", "project.before_commit", "project.after_commit")
BATCH = 5

_SCRIPT = """
import asyncio, sys
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.upcast import Upcasters

async def main():
    database = Database(sys.argv[1], as_roles=True)
    ledger, store = PostgresLedger(database), PostgresProjectionStore(database)
    projector = Projector(ledger, store, FoldRegistry(), Upcasters(), batch_events=int(sys.argv[2]))
    await projector.run_until(await ledger.head())
    await ledger.close()
    await database.close()

asyncio.run(main())
"""


def project(url: str, fault: str = "") -> int:
    """Project in a process of its own and return how it ended."""
    arguments = [sys.executable, "-c", _SCRIPT, url, str(BATCH)]
    return subprocess.run(arguments, env={**os.environ, "NOETL_FAULT": fault}, timeout=60, check=False).returncode


@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_projector_leaves_rows_and_checkpoint_together_and_is_resumed(
    owner_url: str, database: Database, ledger: PostgresLedger, point: str
) -> None:
    """INV-19."""
    store = PostgresProjectionStore(database)
    events = a_run(HOME, 6)
    shard = execution_stream(HOME, events[0].execution_id).shard
    inside = [event for event in events if event.stream.shard == shard]
    await record(ledger, inside[:7])
    assert project(owner_url) == 0
    rows = await stored_rows(store)
    await record(ledger, inside[7:])
    assert project(owner_url, f"{point}=kill") == -signal.SIGKILL

    left, at = await stored_rows(store), (await store.checkpoints()).positions[shard]
    if point == "project.after_commit":
        assert at == 7 + BATCH
        assert max(last for _, _, _, last in left.values()) == at
    else:
        assert (left, at) == (rows, 7)

    assert project(owner_url) == 0
    assert await stored_rows(store) == await pure_rows(ledger, built_in_folds())
    assert await store.checkpoints() == await ledger.head()


@contextmanager
def paused_projector(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a projector and give it once it has stopped itself with a batch written and not committed."""
    reading, writing = os.pipe()
    environment = {**os.environ, "NOETL_FAULT": "project.before_commit=pause", "NOETL_FAULT_FD": str(writing)}
    arguments = [sys.executable, "-c", _SCRIPT, url, "1000"]
    with (
        os.fdopen(reading) as points,
        subprocess.Popen(arguments, env=environment, pass_fds=[writing], stderr=subprocess.PIPE) as process,
    ):
        os.close(writing)
        assert points.readline() == "project.before_commit\n"
        yield process


async def test_a_projector_paused_before_its_commit_is_overtaken_and_changes_nothing_afterwards(
    owner_url: str, database: Database, ledger: PostgresLedger
) -> None:
    """The server ends the paused transaction, whose locks another projector waits for, and its writes are gone."""
    store = PostgresProjectionStore(database)
    events = a_run(HOME, 6)
    await record(ledger, [event for event in events if event.stream.shard == events[0].stream.shard])
    with paused_projector(owner_url) as paused:
        await Projector(ledger, store, FoldRegistry(), Upcasters()).run_until(await ledger.head())
        rows = await stored_rows(store)
        paused.send_signal(signal.SIGCONT)
        _, errors = paused.communicate(timeout=60)
    assert (paused.returncode, b"Unavailable: PostgreSQL does not answer" in errors) == (1, True)
    assert await stored_rows(store) == rows == await pure_rows(ledger, built_in_folds())
