"""A process that dies while it takes a snapshot harms nothing: the snapshot is whole and used, or absent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run

pytestmark = [pytest.mark.service, pytest.mark.fault]

SCOPE = Scope("default", "default")
TAKER = Path(__file__).with_name("snapshot_taker.py")


def run_taker(url: str, directory: Path, execution_id: int, fault: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, str(TAKER), url, str(directory), str(execution_id)]
    return subprocess.run(
        arguments, env={**os.environ, "NOETL_FAULT": fault}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("point", "stands"),
    [("snapshot.before_store", False), ("snapshot.after_store", False), ("snapshot.after_commit", True)],
)
async def test_a_killed_snapshot_is_whole_or_absent_and_can_be_taken_again(
    owner_url: str, database: Database, ledger: PostgresLedger, tmp_path: Path, point: str, stands: bool
) -> None:
    drafts = Drafts(SCOPE, SnowflakeGenerator(25, lambda: time.time_ns() // 1_000_000).mint)
    run = await framed_run(ledger, drafts)
    found = connect(
        database, ledger, payloads=open_object_store(Connection(backend="local", path=tmp_path)), snapshot_interval=999
    )
    full = await found.replay.state(SCOPE, run.execution_id, use_snapshots=False)

    killed = run_taker(owner_url, tmp_path, run.execution_id, f"{point}=kill")
    assert killed.returncode == -signal.SIGKILL
    state = await found.replay.state(SCOPE, run.execution_id)
    assert state.snapshot == (run.positions[-1] if stands else None)
    assert (state.rows, state.checksum, state.warnings) == (full.rows, full.checksum, [])
    await assert_parity(database, ledger, found)

    again = run_taker(owner_url, tmp_path, run.execution_id, "")
    assert again.returncode == 0, again.stderr
    assert int(again.stdout) == run.positions[-1]
    state = await found.replay.state(SCOPE, run.execution_id)
    assert (state.snapshot, state.events, state.checksum) == (run.positions[-1], 0, full.checksum)
