"""INV-04: an append is all or nothing, and what was acknowledged survives; the process is killed at every point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope, loop_stream
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.fault]

SCOPE = Scope("default", "default")
APPENDER = Path(__file__).with_name("group_appender.py")
EVENTS = 3


def run_appender(url: str, execution_id: int, loop_id: int, fault: str) -> subprocess.CompletedProcess[str]:
    """Append once in a process of its own, through the group commit."""
    arguments = [sys.executable, str(APPENDER), url, str(execution_id), str(loop_id), str(EVENTS)]
    return subprocess.run(
        arguments, env={**os.environ, "NOETL_FAULT": fault}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("point", "stands"), [("append.before_begin", False), ("append.after_commit", True)])
async def test_a_killed_append_is_whole_or_absent_and_can_be_repeated(
    owner_url: str, ledger: PostgresLedger, point: str, stands: bool
) -> None:
    """INV-04, INV-06: after the kill the same keyed append gives one set of events, however often it is sent."""
    ids = SnowflakeGenerator(8, lambda: time.time_ns() // 1_000_000)
    execution_id, loop_id = ids.mint(), ids.mint()
    killed = run_appender(owner_url, execution_id, loop_id, f"{point}=kill")
    assert killed.returncode == -signal.SIGKILL
    stream = loop_stream(SCOPE, execution_id, loop_id)
    left = [event.event_id async for event in ledger.read(stream)]
    assert len(left) == (EVENTS if stands else 0)

    again = run_appender(owner_url, execution_id, loop_id, "")
    assert again.returncode == 0, again.stderr
    repeated = run_appender(owner_url, execution_id, loop_id, "")
    events = [event async for event in ledger.read(stream)]
    assert [event.stream_version for event in events] == [1, 2, 3]
    assert again.stdout.split() == repeated.stdout.split() == [str(event.event_id) for event in events]
    if stands:
        assert [event.event_id for event in events] == left


async def test_a_server_that_dies_in_the_middle_of_appends_loses_nothing_acknowledged(ledger: PostgresLedger) -> None:
    """INV-04: sessions are cut by the server while appends run; each event stands exactly once."""
    ids = SnowflakeGenerator(9, lambda: time.time_ns() // 1_000_000)
    drafts = Drafts(SCOPE, ids.mint)
    execution_id, loop_id = ids.mint(), ids.mint()
    stream = loop_stream(SCOPE, execution_id, loop_id)
    killer = await ledger._database.connect("runtime")
    acknowledged: list[int] = []
    for number in range(60):
        if number % 10 == 5:
            await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = current_user AND pid <> pg_backend_pid() AND datname = current_database()"
            )
        answer = await ledger.append(stream, [drafts.loop_item(execution_id, loop_id, number)])
        acknowledged += answer.event_ids
    await killer.close()
    assert [event.event_id async for event in ledger.read(stream)] == acknowledged
