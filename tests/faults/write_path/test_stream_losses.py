"""A stream that loses what it acknowledged: exactly the lost facts are told, and everything that it still has comes to the ledger."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from tests.faults.write_path.stream_writer import (
    ForgetfulServer,
    Writer,
    at_ledger,
    open_recorder,
    open_writer,
    recorded_in,
    settings_of,
)
from tests.faults.write_path.test_left_in_the_stream import run

from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.stream.relay.pending_events import OVERDUE_SECONDS
from noetl.kernel.stream.write_path.written_messages import drained, trimmed
from noetl.runtime.roles.server import open_server
from noetl.runtime.service import Stopping
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.streams.relay import relaying
from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path import losses
from noetl.runtime.write_path.movers import open_materializer, open_write_path
from noetl.testing.engines.parity import assert_parity
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.projected_ledger import a_run

pytestmark = [pytest.mark.service, pytest.mark.fault]


@pytest.fixture
async def forgetful(tmp_path: Path) -> AsyncIterator[ForgetfulServer]:
    """A NATS server of the test's own."""
    server = ForgetfulServer(tmp_path / "nats")
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes look at their notes without delay."""
    monkeypatch.setattr(losses, "LOOK_SECONDS", 0.1)


def tokens_of(told: list[dict[str, Any]]) -> dict[int, str]:
    """Return the tokens of facts that a report names."""
    return {int(one["event_id"]): one["read_token"] for one in told}


def said_of_losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of lost facts."""
    return [entry.getMessage() for entry in caplog.records if "facts that it had acknowledged" in entry.getMessage()]


async def record_again(writer: Writer) -> int:
    """Record a fact as soon as the stream takes facts again, and return its id."""

    async def taken() -> int | None:
        draft = writer.fact("thing-0")
        try:
            await writer.facts.record(draft)
        except NoetlError:
            return None
        return draft.event_id

    return int(await until(taken, "a stream that takes facts"))


async def test_a_lost_tail_is_told_exactly_although_its_sequences_are_given_out_again(
    owner_url: str, tmp_path: Path, forgetful: ForgetfulServer, stream_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-126."""
    settings = settings_of(owner_url, tmp_path / "home", forgetful.url, stream_prefix, "ledger")
    async with open_recorder(settings) as recorder:
        kept = await recorder.record(5)
    await forgetful.keep()
    async with open_recorder(settings) as recorder:
        lost = await recorder.record(7)
    await forgetful.forget()
    async with open_recorder(settings) as recorder:
        later = await recorder.record(12)

    code, told = await asyncio.to_thread(run, settings, "stream", "lost", "--json")
    assert code == 1
    report = json.loads(told)
    assert tokens_of(report["lost"]) == lost
    assert tokens_of(report["in_stream"]) == kept | later

    counts: list[int] = []
    with caplog.at_level(logging.ERROR):
        async with open_runtime(settings) as runtime, open_write_path(runtime, "tests", lost=counts.append):

            async def all_there() -> bool:
                return await recorded_in(runtime) == {*kept, *later}

            await until(all_there, "all facts that the stream still has")
    assert counts[-1] == len(lost)
    assert len(said_of_losses(caplog)) == 1
    assert "lost 7 facts" in said_of_losses(caplog)[0]
    assert "`noetl stream lost`" in said_of_losses(caplog)[0]
    code, told = await asyncio.to_thread(run, settings, "stream", "lost", "--json")
    assert (code, tokens_of(json.loads(told)["lost"]), json.loads(told)["in_stream"]) == (1, lost, [])
    code, told = await asyncio.to_thread(run, settings, "stream", "lost", "--forget", "--json")
    assert (code, tokens_of(json.loads(told)["lost"])) == (0, lost)
    code, told = await asyncio.to_thread(run, settings, "stream", "lost")
    said = "Every fact noted on this node (0) is in the ledger; 7 facts were acknowledged as lost, and no node has recorded "
    assert (code, told) == (0, f"{said}another loss.\n")


async def test_facts_of_a_stream_that_was_made_anew_under_their_writer_are_not_told_as_lost(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-126."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix, "ledger")
    async with (
        open_recorder(settings) as recorder,
        open_stream(settings, recorder.runtime.database, "writes") as writes,
    ):
        lost = await recorder.record(3)
        await writes.wipe()
        # Another writer takes the sequences beyond those that the first one knows: nothing tells it of the new stream.
        async with open_recorder(settings) as other:
            later = await other.record(10)
        later |= await recorder.record(2)
        found = await losses.unwritten_facts(recorder.runtime, writes)
        assert {one.event_id: str(one.token) for one in found.lost} == lost
        assert {one.event_id: str(one.token) for one in found.in_stream} == later
        # Whoever acknowledges a loss need not stop the process whose notes tell of it.
        assert (await losses.known_losses(recorder.runtime, writes, forget=True)).lost == found.lost
        left = await losses.unwritten_facts(recorder.runtime, writes)
        assert (left.lost, left.in_stream) == ([], found.in_stream)


async def test_decided_events_that_the_stream_lost_are_published_again_at_once(
    owner_url: str, tmp_path: Path, forgetful: ForgetfulServer, stream_prefix: str
) -> None:
    """INV-127."""
    settings = settings_of(owner_url, tmp_path / "home", forgetful.url, stream_prefix)
    async with (
        open_runtime(settings) as runtime,
        open_stream(settings, runtime.database, "events") as events,
        open_stream(settings, runtime.database, "writes") as writes,
        relaying(runtime, events, writes=writes),
    ):
        await writes.open()
        await forgetful.keep()
        await WritePathChange(runtime.database, runtime.ledger.way).to("stream")
        drafts = a_run(runtime.scope, 1)
        async with runtime.ledger.decision(runtime.scope) as decision:
            for draft in drafts:
                await decision.append(draft.stream, [draft])

        async def published() -> bool:
            try:
                return (await writes.state()).messages == len(drafts)
            except NoetlError:
                return False

        await until(published, "the decided events in the stream")
        await forgetful.forget()
        async with open_materializer(runtime, "tests", writes):
            await runtime.ledger.settled(OVERDUE_SECONDS / 2)


async def test_going_back_to_the_ledger_after_a_loss_takes_along_whatever_the_stream_has(
    owner_url: str, tmp_path: Path, forgetful: ForgetfulServer, stream_prefix: str
) -> None:
    """INV-127."""
    settings = settings_of(owner_url, tmp_path / "home", forgetful.url, stream_prefix)
    acknowledged: set[int] = set()
    async with open_writer(settings) as writer:
        await writer.write(10, acknowledged.add)
        await forgetful.keep()
        acknowledged.add(await record_again(writer))
        await writer.write(40, acknowledged.add)

        async def written() -> bool:
            return acknowledged <= await recorded_in(writer.runtime)

        # Durables and checkpoints are far ahead of what the stream will have.
        await until(written, "all that was acknowledged before the loss")
        await forgetful.forget()
        acknowledged.add(await record_again(writer))
        await writer.write(15, acknowledged.add)
        async with open_runtime(at_ledger(settings)) as other, open_write_path(other, "other"):
            assert await other.ledger.way.look() == "ledger"
            assert acknowledged <= await recorded_in(other)
            await assert_parity(other.database, other.ledger)
            async with open_stream(settings, other.database, "writes") as writes:
                assert (await losses.unwritten_facts(other, writes)).lost == []


async def test_a_stream_that_lost_its_tail_is_drained_and_trimmed_by_its_messages(
    owner_url: str, tmp_path: Path, forgetful: ForgetfulServer, stream_prefix: str
) -> None:
    """INV-127."""
    settings = settings_of(owner_url, tmp_path / "home", forgetful.url, stream_prefix)
    async with open_writer(settings) as writer:
        await record_again(writer)
        await forgetful.keep()
        written = {await record_again(writer)}
        await writer.write(30, written.add)
        async with open_stream(settings, writer.runtime.database, "writes") as writes:
            await drained(writer.runtime.database, writes)
    await forgetful.forget()
    async with open_recorder(settings) as recorder:
        later = set(await recorder.record(3))
        async with open_stream(settings, recorder.runtime.database, "writes") as writes:
            # Checkpoints of the messages that are gone stand behind the barriers, and nobody writes.
            with pytest.raises(NoetlError, match="not in the ledger"):
                await drained(recorder.runtime.database, writes, 1.0)
        assert not later & await recorded_in(recorder.runtime)
    async with open_writer(settings) as writer:
        async with open_stream(settings, writer.runtime.database, "writes") as writes:
            upto = await trimmed(writer.runtime.database, writes)
            assert (await writes.state()).first_sequence == upto + 1
        assert written | later <= await recorded_in(writer.runtime)


async def test_nobody_waits_for_a_barrier_that_the_stream_lost(
    owner_url: str, tmp_path: Path, forgetful: ForgetfulServer, stream_prefix: str
) -> None:
    """INV-127."""
    settings = settings_of(owner_url, tmp_path / "home", forgetful.url, stream_prefix, "ledger")
    async with (
        open_recorder(settings) as recorder,
        open_stream(settings, recorder.runtime.database, "writes") as writes,
    ):
        runtime = recorder.runtime
        kept = await recorder.record(3)
        await forgetful.keep()

        async def barriers() -> bool:
            try:
                return (await writes.state()).messages > len(kept)
            except NoetlError:
                return False

        async def opened() -> bool:
            with suppress(NoetlError):
                return (await writes.open()).messages == len(kept)
            return False

        await until(opened, "the server being back")
        draining = asyncio.create_task(drained(runtime.database, writes))
        await until(barriers, "barriers in the stream")
        await forgetful.forget()
        async with open_materializer(runtime, "tests", writes):
            await draining
            assert await recorded_in(runtime) == kept.keys()


@pytest.mark.usefixtures("looks_often")
async def test_a_server_whose_stream_is_wiped_tells_exactly_what_is_gone(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-126."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    async with (
        open_server(settings, Stopping(), lambda _: None, port=0) as serving,
        aiohttp.ClientSession(serving.url) as http,
        open_stream(settings, serving.runtime.database, "writes") as writes,
    ):
        runtime = serving.runtime

        async def posted(count: int) -> dict[int, str]:
            taken = {}
            for number in range(count):
                thing = f"thing-{number % 5}"
                fact = {"event_type": "business.seen", "aggregate_id": thing, "stream_id": f"business/{thing}"}
                async with http.post("/api/events", json=fact) as answer:
                    assert answer.status == 201
                    said = await answer.json()
                taken[int(said["event_id"])] = said["read_token"]
            return taken

        async def lost_facts() -> tuple[int, float]:
            async with http.get("/api/health") as answer:
                healthy = (await answer.json())["lost_facts"]
            async with http.get("/metrics") as answer:
                lines = (await answer.text()).splitlines()
            return healthy, next(float(line.split()[1]) for line in lines if line.startswith("stream_lost_facts "))

        acknowledged = await posted(5)
        await drained(runtime.database, writes)
        assert await lost_facts() == (0, 0.0)
        with psycopg.connect(owner_url) as held:
            held.execute("LOCK TABLE noetl.materialized IN EXCLUSIVE MODE")
            acknowledged |= await posted(30)
            await writes.wipe()
            later = await posted(5)

        async def later_ones() -> bool:
            return later.keys() <= await recorded_in(runtime)

        await until(later_ones, "the facts of the new stream")
        # A batch that a materializer had in its hands is not lost.
        gone = acknowledged.keys() - await recorded_in(runtime)
        assert len(gone) > 5

        async def told() -> bool:
            return await lost_facts() == (len(gone), float(len(gone)))

        await until(told, f"{len(gone)} lost facts being told")
        found = await losses.unwritten_facts(runtime, writes)
        assert {one.event_id: str(one.token) for one in found.lost} == {one: acknowledged[one] for one in gone}
        assert found.in_stream == []
        # Facts may be found missing one after the other, and each is told once.
        named = [name for said in said_of_losses(caplog) for name in re.findall(r"[0-9]{15,}", said)]
        assert named
        assert len(named) == len(set(named))
