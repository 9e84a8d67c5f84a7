"""The notes of acknowledged facts stay few, and whoever is killed while it lets notes go, those of lost facts are there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.write_path.stream_writer import open_recorder, open_writer, settings_of
from tests.faults.write_path.test_database_away import environment
from tests.faults.write_path.test_left_in_the_stream import run

from noetl.kernel.stream.losses import journal
from noetl.kernel.stream.losses.journal_files import files_in, noted_in
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path import losses
from noetl.runtime.write_path.losses import journal_directory, unwritten_facts
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

SMALL = 4_000
ROUNDS = 20


def noted(settings: Settings) -> set[int]:
    """Return the facts that are noted."""
    return {one.event_id for found in noted_in(journal_directory(settings)) for one in found}


async def test_notes_stay_few_however_many_facts_a_process_publishes(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-127."""
    monkeypatch.setattr(journal, "LARGEST", SMALL)
    monkeypatch.setattr(losses, "LOOK_SECONDS", 0.05)
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    directory = journal_directory(settings)
    acknowledged: set[int] = set()
    async with open_writer(settings) as writer:
        for _ in range(ROUNDS):
            await writer.write(90, acknowledged.add)

        async def few() -> bool:
            return sum(path.stat().st_size for path in files_in(directory)) < 3 * SMALL

        await until(few, "notes that are let go of")
        assert len(acknowledged) > 2 * len(noted(settings))
    # What was left at the end is let go of by whoever looks next.
    async with open_runtime(settings) as runtime, open_stream(settings, runtime.database, "writes") as writes:
        found = await unwritten_facts(runtime, writes)
    assert (found.lost, found.in_stream, files_in(directory)) == ([], [], [])


@pytest.mark.parametrize(
    "point",
    ["noted.before_drop", "noted.before_replace", "noted.after_drop", "lost.before_record", "lost.after_record"],
)
async def test_whoever_is_killed_while_it_lets_notes_go_keeps_those_of_lost_facts(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, point: str
) -> None:
    """INV-127."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    async with open_recorder(settings) as recorder:
        kept = await recorder.record(4)
        async with open_writer(settings) as writer:
            await writer.runtime.ledger.settled()
        lost = await recorder.record(3)
        async with open_stream(settings, recorder.runtime.database, "writes") as writes:
            await writes.wipe()
            # Nobody lets go of what may still grow.
            assert {one.event_id for one in (await unwritten_facts(recorder.runtime, writes)).lost} == lost.keys()
        assert noted(settings) == {*kept, *lost}
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "noetl", "stream", "lost",
        env=os.environ | environment(settings) | {"NOETL_FAULT": f"{point}=kill"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    await asyncio.wait_for(killed.communicate(), 60)
    assert killed.returncode == -signal.SIGKILL
    assert lost.keys() <= noted(settings)
    code, told = await asyncio.to_thread(run, settings, "stream", "lost", "--json")
    assert (code, {int(one["event_id"]) for one in json.loads(told)["lost"]}) == (1, lost.keys())
    assert noted(settings) == lost.keys()
    elsewhere = settings_of(owner_url, tmp_path / "elsewhere", nats_url, stream_prefix)
    code, told = await asyncio.to_thread(run, elsewhere, "stream", "lost", "--json")
    assert (code, {int(one["event_id"]) for one in json.loads(told)["lost"]}) == (1, lost.keys())
