"""How fast messages get into JetStream, beside bare pipelined publishing by the same client."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from nats.aio.client import Client
from nats.js.client import JetStreamContext

from bench.bulk_history import many_executions
from bench.database_testbed import open_database_testbed
from bench.figure import Figure, alternating
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.kernel.ledger.postgres.write_path import WritePath
from noetl.kernel.stream.encoding import fact_message, message_of
from noetl.kernel.stream.losses.journal import Journal
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.stream import NatsStream
from noetl.kernel.stream.port import EVENTS, WRITES, Message
from noetl.kernel.stream.relay.relay import Relay
from noetl.kernel.stream.write_path.facts import Facts
from noetl.model.event import Draft, Event
from noetl.runtime.nats.server import running_nats
from noetl.testing.samples.drafts import PRODUCER

ROUNDS = 7
MESSAGES = 10_000
AT_ONCE = 4_000
BARE_WINDOW = 256
"""Messages under way in bare publishing; larger windows were measured to be slower."""

WRITERS = 1000
"""Clients that record facts at once."""
RELAYED_EXECUTIONS = 400
_LOOK_SECONDS = 0.005

_BARE = "bare"
_NUMBERS = count(1)


class StreamTestbed:
    """A server of its own with its shipped settings: our stream on it, and a bare one beside it."""

    def __init__(self, connection: NatsConnection, stream: NatsStream, bare: JetStreamContext) -> None:
        self.connection = connection
        self.stream = stream
        self._bare = bare

    async def publish_bare(self, messages: Sequence[Message]) -> None:
        """Publish the way a program would that has only the client: windows of messages, each acknowledged."""
        for start in range(0, len(messages), BARE_WINDOW):
            sent = [
                await self._bare.publish_async(f"{_BARE}.{message.tenant_id}.{message.execution_id}", message.body)
                for message in messages[start : start + BARE_WINDOW]
            ]
            await asyncio.gather(*sent)


@asynccontextmanager
async def stream_testbed() -> AsyncIterator[StreamTestbed]:
    """Start a server in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as directory:
        async with running_nats(Path(directory) / "nats") as server:
            connection, client = NatsConnection(server.url), Client()
            await client.connect(server.url)
            bare = client.jetstream()
            await bare.add_stream(name=_BARE, subjects=[f"{_BARE}.>"])
            stream = NatsStream(connection, EVENTS)
            await stream.open()
            try:
                yield StreamTestbed(connection, stream, bare)
            finally:
                await stream.close()
                await connection.close()
                await client.close()


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure the stream's own publishing, the relay from the ledger, and facts that the stream acknowledges."""
    measures = {"stream.publish": _publish, "stream.relay": _relay, "stream.ack": _ack}
    found = []
    for name in wanted:
        async with stream_testbed() as on:
            if name != "stream.relay":
                await measures[name](on, 1)  # warms both sides; not counted
            found.append(await measures[name](on, ROUNDS))
    return found


async def _publish(on: StreamTestbed, rounds: int) -> Figure:
    async def ours(_: int) -> float:
        messages = _messages()
        began = time.perf_counter()
        for start in range(0, len(messages), AT_ONCE):
            await on.stream.publish(messages[start : start + AT_ONCE])
        return len(messages) / (time.perf_counter() - began)

    async def floor(_: int) -> float:
        messages = _messages()
        began = time.perf_counter()
        await on.publish_bare(messages)
        return len(messages) / (time.perf_counter() - began)

    return Figure.ratio("stream.publish", *await alternating(ours, floor, rounds), "messages/s", 0.9, "more")


async def _relay(on: StreamTestbed, rounds: int) -> Figure:
    """Let a relay bring a ledger to the stream, again and again from its beginning; the floor sends the same messages."""
    async with open_database_testbed() as ledger:
        await many_executions(ledger.bare, ledger.ids.mint, RELAYED_EXECUTIONS)
        heads = (await ledger.ledger.head()).positions
        events = [event for shard in range(len(heads)) async for event in ledger.ledger.read_shard(shard)]
        bodies = [message_of(event) for event in events]

        async def ours(_: int) -> float:
            await on.stream.wipe()
            relay = Relay(
                ledger.database,
                on.stream,
                ShardLeases(ledger.database, "relay", "bench"),
                lambda: listening(ledger.database, "relay", 1.0),
            )
            began = time.perf_counter()
            await relay.start()
            while (await on.stream.state()).messages < len(events):  # noqa: ASYNC110 - the server counts them
                await asyncio.sleep(_LOOK_SECONDS)
            taken = time.perf_counter() - began
            await relay.stop()
            return len(events) / taken

        async def floor(_: int) -> float:
            began = time.perf_counter()
            await on.publish_bare(bodies)
            return len(events) / (time.perf_counter() - began)

        await ours(0)
        return Figure.ratio("stream.relay", *await alternating(ours, floor, min(rounds, 5)), "events/s", 0.5, "more")


async def _ack(on: StreamTestbed, rounds: int) -> Figure:
    """Record facts from many writers at once; each waits for its acknowledgement before the next one of its own."""
    way = WritePath(Database("postgresql:///unused"))
    way.mode = "stream"
    writes = NatsStream(on.connection, WRITES)
    await writes.open()
    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as directory:
        journal = Journal(Path(directory))
        facts = Facts(writes, way, journal)

        async def ours(_: int) -> float:
            drafts = _facts()
            each = len(drafts) // WRITERS

            async def writer(number: int) -> None:
                for draft in drafts[number * each : (number + 1) * each]:
                    await facts.record(draft)

            began = time.perf_counter()
            await asyncio.gather(*map(writer, range(WRITERS)))
            return len(drafts) / (time.perf_counter() - began)

        async def floor(_: int) -> float:
            messages = [fact_message(draft.stream, draft.stream.shard, draft) for draft in _facts()]
            began = time.perf_counter()
            await on.publish_bare(messages)
            return len(messages) / (time.perf_counter() - began)

        found = Figure.ratio("stream.ack", *await alternating(ours, floor, rounds), "facts/s", 0.6, "more")
        journal.close()
    return found


def _facts() -> list[Draft]:
    """Make facts about a thousand things, as a client would send them."""
    at = datetime.now(UTC)
    return [
        Draft(
            next(_NUMBERS), "default", "default", 1, f"business/thing-{index % 1000}", "business_object",
            f"thing-{index % 1000}", "business.seen", "noetl.business.seen", 1, at, "bench",
            context={"patient_id": f"patient-{index:06d}", "facility": "north", "page": index % 7},
        )
        for index in range(MESSAGES)
    ]  # fmt: skip


def _messages() -> list[Message]:
    """Make messages of events as a loop has them, of a hundred executions, about 700 bytes each."""
    at = datetime.now(UTC)
    return [
        message_of(
            Event(
                event_id=next(_NUMBERS),
                tenant_id="default",
                organization_id="default",
                execution_id=1 + index % 100,
                stream_id=f"execution/{1 + index % 100}/loop/7",
                aggregate_type="loop",
                aggregate_id="7",
                event_type="loop.item",
                schema_name="loop.item",
                schema_version=1,
                event_time=at,
                producer=PRODUCER,
                current_index=index,
                current_item={"patient_id": f"patient-{index:06d}", "facility": "north", "page": index % 7},
                context={"collection_ref": "noetl://tenant/default/org/default/payloads/sha256/" + "ab" * 32},
                stream_version=index + 1,
                shard=index % 16,
                position=index + 1,
                ingest_time=at,
            )
        )
        for index in range(MESSAGES)
    ]
