"""The subscription tool against a real NATS server: what is taken, and when it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerInfo

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.subscription.tool import SubscriptionTool
from noetl.engine.worker.held_work import Settling

pytestmark = pytest.mark.service

CallOf = Callable[..., Call]
tool = SubscriptionTool()


class Broker:
    """A stream of the test's own."""

    def __init__(self, client: Client) -> None:
        self.context = client.jetstream()
        self.stream = f"s{uuid4().hex[:12]}"

    async def publish(self, *texts: bytes) -> None:
        for text in texts:
            await self.context.publish(f"{self.stream}.orders", text, headers={"of": "test"})

    async def consumer(self) -> ConsumerInfo:
        return await self.context.consumer_info(self.stream, "drain")


@pytest.fixture
async def broker(nats_url: str, credentials: dict[str, Credential]) -> AsyncIterator[Broker]:
    """A stream on a server that playbooks know as the credential `bus`."""
    credentials["bus"] = Credential("bus", "nats", {"url": nats_url, "user": "u", "password": "p"})
    client = await nats.connect(nats_url, user="u", password="p")
    broker = Broker(client)
    await broker.context.add_stream(name=broker.stream, subjects=[f"{broker.stream}.>"])
    yield broker
    await client.close()


@pytest.fixture
def drain(call_of: CallOf, broker: Broker) -> Callable[..., Any]:
    """Take a batch: `outcome, settling = await drain(batch=2)`."""

    async def run(**options: Any) -> tuple[Outcome, Settling]:
        given = {"source": "nats", "stream": broker.stream, "consumer": "drain", "timeout_ms": 5000, **options}
        settling = Settling()
        call = msgspec.structs.replace(call_of("subscription", options=given, auth="bus"), settling=settling)
        return await tool.run(call), settling

    return run


async def test_a_batch_is_acknowledged_when_it_is_recorded_and_not_before(broker: Broker, drain: Any) -> None:
    """INV-174."""
    await broker.publish(b'{"n": 1}', b"plain", b"\xff")
    outcome, settling = await drain(batch=2)
    assert outcome.error is None
    assert (outcome.data["count"], outcome.data["acked"], outcome.data["source"]) == (2, True, "nats")
    first, second = outcome.data["messages"]
    assert (first["data"], first["id"], first["headers"]["of"]) == ({"n": 1}, f"{broker.stream}:1", "test")
    assert (second["data"], second["sequence"], second["deliveries"]) == ("plain", 2, 1)
    assert (await broker.consumer()).num_ack_pending == 2, "nothing is acknowledged before it is recorded"
    await settling.settle(recorded=True)
    await settling.settle(recorded=False)
    assert ((await broker.consumer()).num_ack_pending, (await broker.consumer()).ack_floor.stream_seq) == (0, 2)
    async with asyncio.timeout(60):  # who has all there is does not wait for more
        outcome, settling = await drain(batch=50, timeout_ms=600_000)
    assert [message["data"] for message in outcome.data["messages"]] == ["/w=="]
    await settling.settle(recorded=False)
    again, _ = await drain()
    assert [message["deliveries"] for message in again.data["messages"]] == [2], "what was not recorded comes again"


async def test_nothing_is_taken_of_an_empty_stream_and_never_acknowledged_is_given_back(
    broker: Broker, drain: Any
) -> None:
    outcome, _ = await drain(timeout_ms=50)
    assert outcome.data == {"source": "nats", "messages": [], "count": 0, "acked": False}
    await broker.publish(b"one")
    for deliveries in (1, 2):
        outcome, settling = await drain(ack="never")
        assert (outcome.data["acked"], outcome.data["messages"][0]["deliveries"]) == (False, deliveries)
        await settling.settle(recorded=True)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"stream": "no_such_stream"}, "not_found"),
        ({"stream": None}, "schema"),
        ({"source": "fax"}, "schema"),
        ({"ack": "twice"}, "schema"),
        ({"batch": 0}, "schema"),
        ({"timeout_ms": "soon"}, "schema"),
    ],
)
async def test_what_cannot_be_taken_is_an_error_in_words(drain: Any, options: dict[str, Any], kind: str) -> None:
    outcome, _ = await drain(**options)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.source) == (kind, "subscription")


async def test_in_a_loop_there_is_no_end_to_acknowledge_at(call_of: CallOf, broker: Broker) -> None:
    given = {"source": "nats", "stream": broker.stream, "consumer": "drain"}
    outcome = await tool.run(call_of("subscription", options=given, auth="bus"))
    assert outcome.error is not None
    assert "loop" in outcome.error.message
