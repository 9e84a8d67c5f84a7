"""A loss that one node finds is told on all of them, and acknowledged on any."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.faults.write_path.stream_writer import Recorder, open_recorder, open_writer, settings_of
from tests.faults.write_path.test_database_away import environment
from tests.faults.write_path.test_left_in_the_stream import run
from tests.faults.write_path.test_stream_losses import tokens_of

from noetl.kernel.stream.losses.journal import Noted
from noetl.kernel.stream.losses.journal_files import noted_in
from noetl.kernel.stream.losses.recorded import RecordedLosses
from noetl.runtime.roles.server import open_server
from noetl.runtime.service import Stopping
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path import losses
from noetl.runtime.write_path.losses import journal_directory, known_losses, telling_losses
from noetl.runtime.write_path.movers import open_write_path
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

LOST = 7
NOBODY = "nats://127.0.0.1:1"
"""Where no server listens."""


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes look at their notes without delay."""
    monkeypatch.setattr(losses, "LOOK_SECONDS", 0.1)


async def lose(recorder: Recorder) -> dict[int, str]:
    """Record facts and lose them with their stream; return the tokens of their writers."""
    lost = await recorder.record(LOST)
    async with open_stream(recorder.runtime.settings, recorder.runtime.database, "writes") as writes:
        await writes.wipe()
    return lost


def lost_without_nats(settings: Settings) -> tuple[int, str]:
    """Run `noetl stream lost` on a node that knows no NATS server, with a narrow page and no terminal."""
    environ = os.environ | environment(settings)
    environ |= {"NOETL_EVENT_STORE__DISTRIBUTION_BACKEND": "postgres", "COLUMNS": "80"}
    del environ["NOETL_EVENT_STORE__CONNECTION__URL"]
    command = [sys.executable, "-m", "noetl", "stream", "lost"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("looks_often")
async def test_what_one_node_finds_lost_is_told_on_every_node_until_one_acknowledges_it(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-126."""
    here, there = (settings_of(owner_url, tmp_path / name, nats_url, stream_prefix, "ledger") for name in "ab")
    async with open_recorder(here) as recorder:
        lost = await lose(recorder)
    code, told = await asyncio.to_thread(run, there, "stream", "lost")
    said = "Every fact noted on this node (0) is in the ledger; no node has recorded a loss.\n"
    assert (code, told) == (0, said), "nobody has looked yet"

    counts: list[int] = []
    async with (
        open_runtime(here) as runtime,
        open_write_path(runtime, "tests", lost=counts.append),
        open_server(there, Stopping(), lambda _: None, port=0) as serving,
        aiohttp.ClientSession(serving.url) as http,
    ):
        assert counts[-1] == LOST

        async def shown() -> tuple[int, float]:
            async with http.get("/api/health") as answer:
                healthy = (await answer.json())["lost_facts"]
            async with http.get("/metrics") as answer:
                lines = (await answer.text()).splitlines()
            return healthy, next(float(line.split()[1]) for line in lines if line.startswith("stream_lost_facts "))

        assert await shown() == (LOST, float(LOST))
        code, told = await asyncio.to_thread(run, there, "stream", "lost", "--json")
        assert (code, tokens_of(json.loads(told)["lost"])) == (1, lost)
        code, told = await asyncio.to_thread(run, there, "verify")
        assert (code, f"{LOST} acknowledged facts are gone; `noetl stream lost` names them" in told) == (1, True)

        code, told = await asyncio.to_thread(run, there, "stream", "lost", "--forget", "--json")
        assert (code, tokens_of(json.loads(told)["lost"]), json.loads(told)["acknowledged"]) == (0, lost, LOST)

        async def nobody_tells() -> bool:
            return await shown() == (0, 0.0) and counts[-1] == 0

        await until(nobody_tells, "servers that tell of no loss")

        async def let_go() -> bool:
            return not list(noted_in(journal_directory(here)))

        await until(let_go, "notes that are let go of where they were written")
    for settings in (here, there):
        code, told = await asyncio.to_thread(run, settings, "stream", "lost")
        said = "0) is in the ledger; 7 facts were acknowledged as lost, and no node has recorded another loss."
        assert (code, said in told) == (0, True), told
        assert (await asyncio.to_thread(run, settings, "verify"))[0] == 0


async def test_a_node_without_a_stream_tells_what_others_recorded_and_what_it_cannot_look_for(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-126."""
    here, there = (settings_of(owner_url, tmp_path / name, nats_url, stream_prefix, "ledger") for name in "ab")
    async with open_recorder(here) as recorder:
        lost = await lose(recorder)
        async with open_stream(here, recorder.runtime.database, "writes") as writes:
            assert len((await known_losses(recorder.runtime, writes)).lost) == LOST
    async with open_recorder(there) as recorder:
        await recorder.record(2)
    plain = Settings.model_validate({"runtime": {"home": str(tmp_path / "b")}, "database": {"url": owner_url}})
    async with open_runtime(plain) as runtime:
        found = await known_losses(runtime, None)
        counts: list[int] = []
        async with open_write_path(runtime, "tests", lost=counts.append):
            assert counts == [LOST]
    away = settings_of(owner_url, tmp_path / "b", NOBODY, stream_prefix, "ledger")
    async with (
        open_runtime(away) as runtime,
        open_stream(away, runtime.database, "writes") as writes,
        telling_losses(runtime, writes, counts.append),
    ):
        assert counts == [LOST, LOST], "what is recorded is known though the stream does not answer"
    assert {one.event_id: str(one.token) for one in found.lost} == lost
    assert (found.unlooked, found.noted, found.in_stream) == (2, 2, [])
    code, told = await asyncio.to_thread(lost_without_nats, there)
    assert code == 1
    assert "2 facts noted on this node are not in the ledger, and the settings name no NATS server" in told
    # Tokens are copied from here into other commands, so none is broken where there is no terminal.
    assert [token for token in lost.values() if token not in told.split()] == []


async def test_a_fact_that_comes_to_the_ledger_after_all_is_struck_out(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-126."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    async with open_writer(settings) as writer:
        there, gone = writer.fact("thing-1"), writer.fact("thing-2")
        await writer.runtime.ledger.append(there.stream, [there])
        recorded = RecordedLosses(writer.runtime.database)
        both = [
            Noted("made", 1, one.stream.shard, one.tenant_id, one.organization_id, one.execution_id, one.event_id)
            for one in (there, gone)
        ]
        await recorded.record(both)
        await recorded.record(both)
        assert await recorded.told() == both[1:]
        assert await recorded.counts() == (1, 0)
        assert await recorded.acknowledged_of(both) == []
        await recorded.acknowledge(both[1:])
        await recorded.record(both[1:])
        assert (await recorded.told(), await recorded.counts()) == ([], (0, 1))
        assert await recorded.acknowledged_of(both) == both[1:]
