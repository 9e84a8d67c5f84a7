"""Killed while it changes the write path: whoever still runs ends the change, and writes go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.write_path.stream_writer import open_writer, settings_of
from tests.faults.write_path.test_killed_on_the_way import everything_stands

from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path.movers import open_write_path
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("changing.py")
COUNT = 30


async def killed_at(point: str, url: str, home: Path, nats: str, prefix: str, way: str) -> None:
    """Let a process that changes the write path die at a point."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROCESS), url, str(home), nats, prefix, way,
        env={**os.environ, "NOETL_FAULT": f"{point}=kill"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, said) == (-signal.SIGKILL, b"")


@pytest.mark.parametrize("point", ["change.after_begin", "change.after_drain", "change.after_end"])
async def test_a_process_killed_while_going_back_to_the_ledger_stops_no_writes(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, point: str
) -> None:
    """INV-115, INV-125."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    acknowledged: set[int] = set()
    async with open_writer(settings) as writer:
        await writer.write(COUNT, acknowledged.add)
        await killed_at(point, owner_url, tmp_path, nats_url, stream_prefix, "ledger")

        async def changed() -> bool:
            return await writer.runtime.ledger.way.look() == "ledger"

        await until(changed, "the change that the dead process began")
        await writer.write(COUNT, acknowledged.add)
    await everything_stands(settings, acknowledged)


async def test_a_process_killed_while_going_to_the_stream_stops_no_writes(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-125."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix, "ledger")
    async with open_runtime(settings) as runtime, open_write_path(runtime, "tests"):
        await killed_at("change.after_begin", owner_url, tmp_path, nats_url, stream_prefix, "stream")

        async def changed() -> bool:
            return await runtime.ledger.way.look() == "stream"

        await until(changed, "the change that the dead process began")
        # Nobody but this process is left to publish and to materialize what is appended.
        draft = Drafts(runtime.scope, runtime.ids.mint).business("business/thing-0", runtime.ids.mint())
        assert (await runtime.ledger.append(draft.stream, [draft])).first_position == 1
