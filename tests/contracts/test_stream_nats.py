"""What only a real NATS server shows: crashes of it, readers that clash, streams that are configured otherwise."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pytest
from nats.js.api import RetentionPolicy, StreamConfig

from noetl.errors import LeaseLost, NotFound, Unavailable, Unsupported
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.consumers import makings
from noetl.kernel.stream.nats.stream import NatsStream, StreamLimits
from noetl.kernel.stream.port import Message
from noetl.runtime.nats import server as nats_server
from noetl.runtime.nats.server import NatsServer, running_nats
from noetl.testing.contracts.stream import SOON, drain, ids, nothing_more, of_shard

pytestmark = pytest.mark.service
Answer = TypeVar("Answer")


def messages(count: int, *, first: int = 1, shard: int = 3, tenant_id: str = "acme") -> list[Message]:
    return [
        Message(tenant_id, 17, shard, f"{tenant_id}/{number}", b"body of %d" % number)
        for number in range(first, first + count)
    ]


async def until_it_answers(stream: NatsStream, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call again while the server is away, as every caller does."""
    async with asyncio.timeout(SOON * 2):
        while True:
            await stream.connection.back()
            with suppress(Unavailable):
                return await call()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def own(server: NatsServer) -> AsyncIterator[NatsStream]:
    """A stream on a server that the test may kill."""
    connection = NatsConnection(server.url, request_seconds=2)
    stream = NatsStream(connection, "noetl_events")
    await stream.open()
    yield stream
    await stream.close()
    await connection.close()


@pytest.fixture
async def stream(nats_connection: NatsConnection, stream_prefix: str) -> AsyncIterator[NatsStream]:
    stream = NatsStream(nats_connection, f"{stream_prefix}_events")
    await stream.open()
    yield stream
    await stream.close()


async def test_a_server_that_is_killed_has_every_acknowledged_message(server: NatsServer, own: NatsStream) -> None:
    reader = await own.subscribe("reader")
    put = messages(50)
    await own.publish(put)
    await reader.acknowledge((await drain(reader, 50, ack=False))[:20])
    before = await own.state()
    await server.kill()
    with pytest.raises(Unavailable):
        await own.publish(messages(1, first=51))
    await server.start()
    put += messages(10, first=51)
    await until_it_answers(own, lambda: own.publish(put[50:]))
    after = await own.state()
    assert (after.created, after.messages) == (before.created, 60)
    # The subscription goes on by itself: what it had acknowledged is done, whatever the server remembers of it.
    rest = await until_it_answers(own, lambda: drain(reader, 40))
    assert ids(rest) == ids(put[20:])
    await nothing_more(reader)


async def test_a_server_that_comes_back_empty_is_another_stream(
    server: NatsServer, own: NatsStream, tmp_path: Path
) -> None:
    reader = await own.subscribe("reader")
    await own.publish(messages(5))
    before = await own.state()
    await server.kill()
    shutil.rmtree(tmp_path / "nats" / "data")
    await server.start()
    with pytest.raises(NotFound):
        await until_it_answers(own, lambda: own.publish(messages(1)))
    with pytest.raises(NotFound):
        await until_it_answers(own, lambda: reader.fetch(1, SOON))
    after = await own.open()
    assert after.created != before.created
    assert after.messages == 0
    assert [each.duplicate for each in await own.publish(messages(5))] == [False] * 5


async def test_a_publish_that_is_cut_off_is_recognised_when_it_is_repeated(server: NatsServer, own: NatsStream) -> None:
    put = messages(3000)
    publishing = asyncio.create_task(own.publish(put))
    while (await own.state()).messages == 0:
        pass
    await server.kill()
    with pytest.raises(Unavailable):
        await publishing
    await server.start()
    await until_it_answers(own, lambda: own.publish(put))
    assert (await own.state()).messages == 3000
    assert ids(await drain(await own.subscribe("reader"), 3000, limit=1000)) == ids(put)


class Gate:
    """Stands before a server and passes bytes, until it loses some of a client's and breaks its connection once.

    Answers that come meanwhile reach the client together with the break, when it has more to send.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening: asyncio.Server | None = None
        self._to_pass: int | None = None
        self._lost = 0

    async def open(self) -> str:
        """Listen, and return the address."""
        self._listening = await asyncio.start_server(self._take, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Listen no more."""
        assert self._listening is not None
        self._listening.close()

    def lose(self, count: int, *, after: int) -> None:
        """Pass so many more bytes of the client's, lose as many as told, and break the connection."""
        self._to_pass, self._lost = after, count

    async def _take(self, own: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self._port)
        held, enough = bytearray(), asyncio.Event()

        async def up() -> None:
            while data := await own.read(4096):
                if self._to_pass is None:
                    server.write(data)
                elif self._to_pass > 0:
                    self._to_pass -= len(data)
                    server.write(data)
                elif self._lost > 0:
                    self._lost -= len(data)
                else:
                    await enough.wait()
                    self._to_pass = None
                    client.write(bytes(held))
                    break
            client.close()
            server.close()

        async def down() -> None:
            while data := await answers.read(65536):
                if self._to_pass is not None and self._to_pass <= 0:
                    held.extend(data)
                    if len(held) > 2_000:
                        enough.set()
                else:
                    client.write(data)
            client.close()

        await asyncio.gather(up(), down(), return_exceptions=True)


async def test_what_is_lost_with_a_connection_does_not_come_behind_what_was_sent_after_it(server: NatsServer) -> None:
    """INV-118."""
    gate = Gate(urlsplit(server.url).port or 0)
    connection = NatsConnection(await gate.open(), request_seconds=2)
    stream = NatsStream(connection, "noetl_events")
    await stream.open()
    stream._publisher.atomic = False
    put = [Message("acme", 17, 3, f"acme/{number}", b"x" * 400) for number in range(1500)]
    gate.lose(60_000, after=100_000)
    with pytest.raises(Unavailable):
        await stream.publish(put)
    await until_it_answers(stream, lambda: stream.publish(put))
    direct = NatsConnection(server.url)
    reading = NatsStream(direct, "noetl_events")
    assert ids(await drain(await reading.subscribe("reader"), len(put), limit=1000)) == ids(put)
    for each in (stream, reading):
        await each.close()
    for one in (connection, direct):
        await one.close()
    gate.close()


async def test_messages_that_never_arrived_are_given_again_and_in_order(
    stream: NatsStream, nats_connection: NatsConnection
) -> None:
    put = messages(4)
    reader = await stream.subscribe("reader", [3], ack_wait_seconds=3600)
    await stream.publish(put[:1])
    await drain(reader, 1)
    # Somebody else takes what the server then counts as given to the durable.
    jetstream = await nats_connection.jetstream()
    await reader.close()
    reader = await stream.subscribe("reader", [3], ack_wait_seconds=3600)
    await stream.publish(put[1:3])
    (consumer,) = (await makings(jetstream, stream.name, "reader"))[3]
    thief = await jetstream.pull_subscribe_bind(consumer.name, stream.name)
    assert len(await thief.fetch(1, timeout=SOON)) == 1
    await stream.publish(put[3:])
    assert ids(await drain(reader, 3)) == ids(put[1:])
    await nothing_more(reader)


async def test_a_reader_whose_durable_was_taken_over_is_told(stream: NatsStream) -> None:
    first = await stream.subscribe("reader", [3])
    await stream.publish(messages(2))
    given = await drain(first, 2, ack=False)
    second = await stream.subscribe("reader", [3])
    with pytest.raises(LeaseLost):
        await first.fetch(1, SOON)
    with pytest.raises(LeaseLost):
        await first.acknowledge(given)
    assert ids(await drain(second, 2)) == ids(given)


async def test_a_batch_with_one_known_message_stores_the_others_in_order(stream: NatsStream) -> None:
    put = messages(10)
    await stream.publish(put[4:5])
    published = await stream.publish(put)
    assert [each.duplicate for each in published] == [number == 4 for number in range(10)]
    assert [each.sequence for each in published] == [2, 3, 4, 5, 1, 6, 7, 8, 9, 10]
    assert (await stream.state()).messages == 10


async def test_a_stream_without_atomic_batches_is_filled_message_by_message(
    stream_prefix: str, nats_connection: NatsConnection
) -> None:
    jetstream = await nats_connection.jetstream()
    name = f"{stream_prefix}_events"
    await jetstream.add_stream(StreamConfig(name=name, subjects=[f"{stream_prefix}.events.*.*.*"]))
    stream = NatsStream(nats_connection, name)
    await stream.open()
    put = messages(600)
    assert [each.sequence for each in await stream.publish(put)] == list(range(1, 601))
    assert ids(await drain(await stream.subscribe("reader"), 600)) == ids(put)
    await stream.close()


async def test_a_batch_larger_than_the_server_takes_is_cut(stream: NatsStream) -> None:
    put = [Message("acme", 17, 3, str(number), b"x" * 60_000) for number in range(150)]
    assert [each.sequence for each in await stream.publish(put)] == list(range(1, 151))


async def test_no_tenant_can_write_itself_into_another_ones_subject(stream: NatsStream) -> None:
    names = ["a.b", "*", ">", "a b", "%2E", "%", "", "Grüße", "x\ty", "~", "$JS"]
    put = [Message(name, 1, 3, f"{number}", b"") for number, name in enumerate(names)]
    await stream.publish(put)
    given = await drain(await stream.subscribe("reader"), len(names))
    assert [each.message for each in of_shard(given, 3)] == put


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"subjects": ["elsewhere.>"]}, "subjects ['elsewhere.>']"),
        ({"retention": RetentionPolicy.WORK_QUEUE}, "retention 'workqueue'; wanted is 'limits'"),
        ({"max_msgs_per_subject": 1}, "max_msgs_per_subject 1; wanted is -1"),
    ],
)
async def test_a_stream_that_is_configured_otherwise_is_refused_by_name(
    wrong: dict[str, object], named: str, stream_prefix: str, nats_connection: NatsConnection
) -> None:
    jetstream = await nats_connection.jetstream()
    fields = {"name": f"{stream_prefix}_events", "subjects": [f"{stream_prefix}.events.*.*.*"]}
    if "subjects" in wrong:
        wrong = {"subjects": [f"{stream_prefix}.elsewhere.>"]}
        named = f"subjects ['{stream_prefix}.elsewhere.>']"
    await jetstream.add_stream(StreamConfig(**{**fields, **wrong}))
    with pytest.raises(Unsupported) as refused:
        await NatsStream(nats_connection, f"{stream_prefix}_events").open()
    assert named in refused.value.message


async def test_a_full_stream_that_must_forget_nothing_refuses_more(
    stream_prefix: str, nats_connection: NatsConnection
) -> None:
    stream = NatsStream(nats_connection, f"{stream_prefix}_writes", StreamLimits(max_bytes=4096, discard="new"))
    await stream.open()
    with pytest.raises((Unavailable, Unsupported)):
        await stream.publish([Message("acme", 1, 3, str(number), b"x" * 500) for number in range(20)])


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"nats://user:hidden@127.0.0.1:{taken.getsockname()[1]}"
        connection = NatsConnection(url)
        with pytest.raises(Unavailable) as refused:
            await NatsStream(connection, "noetl_events").open()
        assert "hidden" not in refused.value.message
        await connection.close()


async def test_a_server_left_behind_by_a_killed_run_gives_way(tmp_path: Path) -> None:
    left = NatsServer(tmp_path)
    await left.start()
    async with running_nats(tmp_path) as server:
        assert left.pid is None or left.pid != server.pid
        connection = NatsConnection(server.url)
        await NatsStream(connection, "noetl_events").open()
        await connection.close()
    await left.kill()


async def test_a_missing_program_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nats_server.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported) as refused:
        await NatsServer(tmp_path).start()
    assert "noetl[nats]" in str(refused.value.hint)
