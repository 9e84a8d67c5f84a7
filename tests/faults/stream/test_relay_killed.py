"""A relay killed, stopped or cut off anywhere: every event comes to the stream, in the order of its shard."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.killable import Killable
from tests.faults.stream.stream_relay import filled, in_order, open_relay

from noetl.kernel.leases.shards import holders
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.stream.relay.progress import Cursors
from noetl.runtime.nats.server import NatsServer, running_nats
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.projected_ledger import HOME, a_run, record

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
NAME = "noetl_events"
Start = Callable[..., Killable]


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of this test alone."""
    async with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def start(owner_url: str, nats: NatsServer, tmp_path: Path) -> Iterator[Start]:
    """Start relays on the test's database and server; none is left behind."""
    running: list[Killable] = []
    log = tmp_path / "process.log"

    def started(holder: str, fault: str = "") -> Killable:
        arguments = (str(PROCESS), owner_url, nats.url, NAME, holder)
        running.append(Killable(*arguments, log=log, environ={"NOETL_FAULT": fault}, patience=60))
        return running[-1]

    yield started
    for process in running:
        process.close()
    sys.stdout.write(log.read_text() if running else "")


@pytest.mark.parametrize(
    "points",
    [
        ("relay.before_publish",),
        ("relay.after_publish",),
        ("relay.after_cursor",),
        ("relay.after_publish", "relay.after_publish"),
    ],
    ids="+".join,
)
async def test_a_relay_killed_there_is_resumed_and_every_event_arrives_once(
    points: tuple[str, ...], ledger: PostgresLedger, nats: NatsServer, start: Start
) -> None:
    """INV-118."""
    for _ in range(5):
        await record(ledger, a_run(HOME))
    for point in points:
        await start("killed", f"{point}=kill").killed()
        await record(ledger, a_run(HOME))
    last = start("last")
    events = await filled(ledger, nats.url, NAME)
    await in_order(ledger, events)
    assert len(events) == sum((await ledger.head()).positions)
    last.send(signal.SIGTERM)
    assert await last.ended() == 0


@pytest.mark.parametrize("point", ["relay.before_publish", "relay.after_publish"])
async def test_a_relay_that_stands_still_past_its_lease_moves_no_cursor_afterwards(
    point: str, database: Database, ledger: PostgresLedger, nats: NatsServer, start: Start
) -> None:
    """INV-117."""
    for _ in range(5):
        await record(ledger, a_run(HOME))
    paused = start("paused", f"{point}=pause")
    await paused.stopped()
    start("next")
    await filled(ledger, nats.url, NAME)
    head = [last for last in (await ledger.head()).positions if last]
    cursors = Cursors(database, NAME)

    async def all_moved() -> bool:
        return [one.position for _, one in sorted((await cursors.all()).items())] == head

    await until(all_moved, "the cursors standing at the ledger's end")
    paused.send(signal.SIGCONT)
    paused.send(signal.SIGTERM)
    assert await paused.ended() == 0
    assert await all_moved()
    events = await filled(ledger, nats.url, NAME)
    await in_order(ledger, events)


async def test_of_two_relays_the_one_that_is_killed_is_replaced_by_the_other(
    database: Database, ledger: PostgresLedger, nats: NatsServer, start: Start
) -> None:
    relays = {name: start(name) for name in ("one", "other")}

    async def shared() -> bool:
        return {one.holder for one in await holders(database)} == relays.keys()

    await until(shared, "both relays having shards")
    for number in range(12):
        await record(ledger, a_run(HOME))
        if number == 5:
            relays["one"].send(signal.SIGKILL)
    events = await filled(ledger, nats.url, NAME)
    await in_order(ledger, events)

    async def taken_over() -> bool:
        return {one.holder for one in await holders(database)} == {"other"}

    # Shards without events may be free a little later than those that had to be published.
    await until(taken_over, "the relay that lives having every shard")


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "with its streams"])
async def test_a_nats_server_that_comes_back_is_filled_to_the_end(
    empty: bool, database: Database, ledger: PostgresLedger, nats: NatsServer, tmp_path: Path
) -> None:
    await record(ledger, a_run(HOME))
    async with open_relay(database, nats.url, NAME, "here"):
        await filled(ledger, nats.url, NAME)
        await nats.kill()
        if empty:
            shutil.rmtree(tmp_path / "nats" / "data")
        await record(ledger, a_run(HOME))
        await nats.start()
        events = await filled(ledger, nats.url, NAME)
    await in_order(ledger, events)


async def test_a_relay_goes_on_after_postgresql_was_restarted(nats: NatsServer, tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "home")
    await asyncio.to_thread(server.start)
    try:
        await asyncio.to_thread(migrations.upgrade, server.url())
        database = Database(server.url(), as_roles=True)
        ledger = PostgresLedger(database)
        await record(ledger, a_run(HOME))
        async with open_relay(database, nats.url, NAME, "here"):
            await filled(ledger, nats.url, NAME)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await record(ledger, a_run(HOME))
            events = await filled(ledger, nats.url, NAME)
            await in_order(ledger, events)
        await ledger.close()
        await database.close()
    finally:
        await asyncio.to_thread(server.destroy)
