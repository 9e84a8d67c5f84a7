"""Killed anywhere between publishing, acknowledgement, ledger and checkpoint: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.write_path.stream_writer import at_ledger, open_writer, settings_of

from noetl.kernel.stream.losses.journal_files import noted_in
from noetl.kernel.stream.write_path.shadow import divergence
from noetl.runtime.nats.server import NatsServer
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.losses import journal_directory, unwritten_facts
from noetl.runtime.write_path.movers import open_write_path
from noetl.testing.engines.parity import assert_parity
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
COUNT = 60
POINTS = [
    "fact.before_publish",
    "fact.after_publish",
    "noted.before_name",
    "waiting.before_publish",
    "waiting.after_publish",
    "materialize.before_write",
    "materialize.after_write",
    "materialize.before_acknowledge",
]


async def everything_stands(settings: Settings, acknowledged: set[int]) -> None:
    """Go back to the ledger, which drains, and compare: each acknowledged event is there once, and replay holds."""
    async with open_writer(settings) as writer:
        await writer.write(5, acknowledged.add)
    async with open_runtime(at_ledger(settings)) as runtime, open_write_path(runtime, "tests"):
        found: list[int] = []
        for thing in range(5):
            events = [event async for event in runtime.ledger.read(runtime.scope.stream(f"business/thing-{thing}"))]
            assert [event.stream_version for event in events] == list(range(1, len(events) + 1))
            found += [event.event_id for event in events]
        assert len(found) == len(set(found))
        assert acknowledged <= set(found)
        await assert_parity(runtime.database, runtime.ledger)


@pytest.mark.parametrize("point", POINTS)
async def test_a_writer_killed_anywhere_loses_nothing_that_was_acknowledged(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, point: str
) -> None:
    """INV-115."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROCESS), owner_url, str(tmp_path), nats_url, stream_prefix, str(COUNT),
        env={**os.environ, "NOETL_FAULT": f"{point}=kill"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == -signal.SIGKILL
    acknowledged = {int(line) for line in said.split()}
    await everything_stands(settings_of(owner_url, tmp_path, nats_url, stream_prefix), acknowledged)


async def test_a_stream_server_killed_under_load_comes_back_with_all_it_acknowledged(
    owner_url: str, tmp_path: Path, stream_prefix: str
) -> None:
    """INV-115."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    settings = settings_of(owner_url, tmp_path / "home", server.url, stream_prefix)
    acknowledged: set[int] = set()
    try:
        async with open_writer(settings) as writer:
            for _ in range(2):
                await writer.write(COUNT, acknowledged.add)
                writing = asyncio.gather(
                    *(writer.write(1, acknowledged.add) for _ in range(COUNT)), return_exceptions=True
                )
                await asyncio.sleep(0)
                await server.kill()
                await server.start()
                await writing
        await everything_stands(settings, acknowledged)
    finally:
        await server.kill()


async def test_a_stream_that_lost_its_disk_is_known_by_exactly_the_facts_that_are_gone(
    owner_url: str, tmp_path: Path, stream_prefix: str
) -> None:
    """INV-116."""
    first, second = NatsServer(tmp_path / "nats"), NatsServer(tmp_path / "empty")
    await first.start()
    acknowledged: list[int] = []
    settings = settings_of(owner_url, tmp_path / "home", first.url, stream_prefix)
    # Nothing materializes here, so that what is acknowledged is in the stream alone.
    async with open_writer(settings) as writer:
        await writer.runtime.ledger.settled()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROCESS), owner_url, str(tmp_path / "home"), first.url, stream_prefix, str(COUNT),
            env={**os.environ, "NOETL_FAULT": "materialize.before_write=kill"}, stdout=subprocess.PIPE,
        )  # fmt: skip
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        acknowledged = [int(line) for line in said.split()]
        await first.kill()
        await second.start()
        empty = settings_of(owner_url, tmp_path / "home", second.url, stream_prefix)
        async with open_runtime(empty) as runtime, open_stream(empty, runtime.database, "writes") as writes:
            gone = (await unwritten_facts(runtime, writes)).lost
        noted = [one.event_id for found in noted_in(journal_directory(empty)) for one in found]
        assert {one.event_id for one in gone} == set(noted)
        assert set(acknowledged) <= set(noted)
        async with open_runtime(at_ledger(empty)) as runtime, open_write_path(runtime, "tests"):
            await assert_parity(runtime.database, runtime.ledger)
    finally:
        await first.kill()
        await second.kill()


async def test_facts_are_taken_while_postgresql_is_away_and_come_to_the_ledger_later(
    tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-115."""
    server = EmbeddedServer(tmp_path / "database")
    await asyncio.to_thread(server.start)
    try:
        await asyncio.to_thread(migrations.upgrade, server.url())
        settings = settings_of(server.url("noetl_owner"), tmp_path / "home", nats_url, stream_prefix)
        acknowledged: set[int] = set()
        async with open_writer(settings) as writer:
            await writer.write(COUNT, acknowledged.add)
            await asyncio.to_thread(server.stop)
            for number in range(COUNT):
                draft = writer.fact(f"thing-{number % 5}")
                await writer.facts.record(draft)
                acknowledged.add(draft.event_id)
            await asyncio.to_thread(server.start)
            await writer.write(COUNT, acknowledged.add)
        await everything_stands(settings, acknowledged)
    finally:
        await asyncio.to_thread(server.destroy)


async def test_going_back_to_the_ledger_under_load_takes_everything_along(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-115."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    acknowledged: set[int] = set()
    async with open_writer(settings) as writer:
        enough = asyncio.Event()

        async def keep_writing() -> None:
            while not enough.is_set():
                await writer.write(COUNT, acknowledged.add)

        writing = asyncio.create_task(keep_writing())
        await writer.write(COUNT, acknowledged.add)
        async with open_runtime(at_ledger(settings)) as other, open_write_path(other, "other"):
            assert await other.ledger.way.look() == "ledger"
            before = len(acknowledged)
            await writer.write(COUNT, acknowledged.add)
            assert len(acknowledged) > before
        enough.set()
        await writing
    async with open_runtime(at_ledger(settings)) as runtime:
        found = [
            event.event_id
            for thing in range(5)
            async for event in runtime.ledger.read(runtime.scope.stream(f"business/thing-{thing}"))
        ]
        assert len(found) == len(set(found))
        assert acknowledged <= set(found)
        await assert_parity(runtime.database, runtime.ledger)


async def test_a_mirror_that_restarts_empty_is_filled_again_and_nothing_diverges(
    owner_url: str, tmp_path: Path, stream_prefix: str
) -> None:
    """INV-119."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    settings = settings_of(owner_url, tmp_path / "home", server.url, stream_prefix, "shadow")
    try:
        async with open_runtime(settings) as runtime, open_write_path(runtime, "tests"):
            drafts = Drafts(runtime.scope, runtime.ids.mint)
            await framed_run(runtime.ledger, drafts)
            await compared_to_the_head(runtime)
            await server.kill()
            await asyncio.to_thread(shutil.rmtree, tmp_path / "nats" / "data")
            await framed_run(runtime.ledger, drafts)
            await server.start()
            await framed_run(runtime.ledger, drafts)
            await compared_to_the_head(runtime)
            found = await divergence(runtime.database)
            assert not any(one.diverges for one in found)
            assert sum(one.equal for one in found) == sum((await runtime.ledger.head()).positions)
            await assert_parity(runtime.database, runtime.ledger)
    finally:
        await server.kill()


async def compared_to_the_head(runtime: Runtime) -> None:
    """Wait until the materializer in shadow has looked at everything."""

    async def all_seen() -> bool:
        head = (await runtime.ledger.head()).positions
        seen = {one.shard: one.position for one in await divergence(runtime.database)}
        return all(seen.get(shard, 0) >= position for shard, position in enumerate(head))

    await until(all_seen, "everything being compared")
