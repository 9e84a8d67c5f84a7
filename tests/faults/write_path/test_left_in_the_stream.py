"""Facts that are acknowledged after the write path was changed: whoever has the stream brings them to the ledger."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.write_path.stream_writer import at_ledger, open_writer, settings_of
from tests.faults.write_path.test_database_away import environment
from tests.faults.write_path.test_killed_on_the_way import COUNT, PROCESS

from noetl.kernel.ledger.postgres.write_path import WritePath
from noetl.kernel.stream.losses.journal import Journal
from noetl.kernel.stream.write_path.facts import Facts
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.losses import journal_directory
from noetl.runtime.write_path.movers import open_write_path
from noetl.testing.engines.parity import assert_parity
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.fault]


async def in_the_ledger(runtime: Runtime, wanted: set[int]) -> None:
    """Wait until all these events are there, each once."""

    async def all_there() -> bool:
        found = [
            event.event_id
            for thing in range(5)
            async for event in runtime.ledger.read(runtime.scope.stream(f"business/thing-{thing}"))
        ]
        assert len(found) == len(set(found))
        return wanted <= set(found)

    await until(all_there, "every acknowledged fact in the ledger")


def run(settings: Settings, *arguments: str) -> tuple[int, str]:
    """Run a command with these settings, and return its exit code and what it printed."""
    command = [sys.executable, "-m", "noetl", *arguments]
    done = subprocess.run(command, env=os.environ | environment(settings), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


async def record_late(runtime: Runtime, thing: int) -> int:
    """Record a fact as a process does that has not noticed the change of the write path."""
    stale = WritePath(runtime.database)
    stale.mode = "stream"
    settings = runtime.settings
    root = runtime.ids.mint()
    draft = Drafts(runtime.scope, runtime.ids.mint).business(f"business/thing-{thing}", root)
    journal = Journal(journal_directory(settings))
    async with open_stream(settings, runtime.database, "writes") as writes:
        facts = Facts(writes, stale, journal)
        assert facts.takes(draft)
        await facts.record(draft)
        await facts.close()
    journal.close()
    return draft.event_id


async def test_what_a_paused_server_acknowledged_late_before_it_was_killed_comes_to_the_ledger(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-115."""
    ledger = settings_of(owner_url, tmp_path, nats_url, stream_prefix, "ledger")
    process = await asyncio.create_subprocess_exec(
        # Once: a second round would pause it again before the materializer has its shards back.
        sys.executable, str(PROCESS), owner_url, str(tmp_path), nats_url, stream_prefix, str(COUNT), "once",
        env={**os.environ, "NOETL_FAULT": "fact.before_publish=pause,materialize.before_write=kill"},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    await asyncio.to_thread(os.waitpid, process.pid, os.WUNTRACED)
    async with open_runtime(ledger) as runtime, open_write_path(runtime, "tests"):
        assert await runtime.ledger.way.look() == "ledger"
    process.send_signal(signal.SIGCONT)
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == -signal.SIGKILL
    acknowledged = {int(line) for line in said.split()}

    code, told = await asyncio.to_thread(run, ledger, "stream", "lost", "--json")
    assert code == 0
    left = {int(one["event_id"]) for one in json.loads(told)["in_stream"]}
    assert len(left) == COUNT * 2 // 3
    assert left <= acknowledged
    async with open_runtime(ledger) as runtime, open_write_path(runtime, "tests"):
        await in_the_ledger(runtime, acknowledged)
        await assert_parity(runtime.database, runtime.ledger)


@pytest.mark.parametrize("way", ["ledger", "shadow"])
async def test_a_process_that_runs_writes_what_others_leave_in_the_stream(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, way: str
) -> None:
    """INV-115."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix, way)
    late: set[int] = set()
    async with open_writer(settings_of(owner_url, tmp_path, nats_url, stream_prefix)) as writer:
        await writer.write(5, late.add)
    async with open_runtime(at_ledger(settings)) as runtime, open_write_path(runtime, "back"):
        assert await runtime.ledger.way.look() == "ledger"
    async with open_runtime(settings) as runtime:
        late.add(await record_late(runtime, 1))
        async with open_write_path(runtime, "tests"):
            await in_the_ledger(runtime, late)
            late.add(await record_late(runtime, 2))
            await in_the_ledger(runtime, late)
            await assert_parity(runtime.database, runtime.ledger)


async def test_verify_tells_of_facts_that_are_in_the_stream_alone(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-115."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix, "ledger")
    async with open_runtime(settings) as runtime:
        async with open_stream(settings, runtime.database, "writes") as writes:
            await writes.open()
        code, told = await asyncio.to_thread(run, settings, "verify")
        assert (code, "Nothing differs." in told) == (0, True)
        await record_late(runtime, 1)
    code, told = await asyncio.to_thread(run, settings, "verify")
    assert code == 1
    assert "acknowledged messages of shards" in told
