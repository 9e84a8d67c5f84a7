"""The subscription tool on Kafka: the protocol of a real server, and one that is not there."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import msgspec
import pytest

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.subscription.tool import SubscriptionTool
from noetl.engine.worker.held_work import Settling
from noetl.testing.servers.kafka import ADDRESS, running_kafka

CallOf = Callable[..., Call]
Drain = Callable[..., Any]
tool = SubscriptionTool()


@pytest.fixture
def drain(call_of: CallOf, credentials: dict[str, Credential]) -> Drain:
    """Take a batch, tell whether it is recorded, and return it: `await drain(batch=2, recorded=True)`."""
    credentials["broker"] = Credential("broker", "kafka", {"brokers": ADDRESS})

    async def run(*, recorded: bool = True, auth: str | None = "broker", **options: Any) -> Outcome:
        given = {"source": "kafka", "topic": "orders", "group": "shop", "timeout_ms": 40_000, **options}
        settling = Settling()
        call = msgspec.structs.replace(call_of("subscription", options=given, auth=auth), settling=settling)
        outcome = await tool.run(call)
        await settling.settle(recorded=recorded)
        return outcome

    return run


async def test_a_broker_that_is_not_there_is_no_empty_topic(drain: Drain) -> None:
    outcome = await drain(auth=None, brokers="127.0.0.1:1", timeout_ms=800)
    assert outcome.error is not None, "nothing was looked at"
    assert (outcome.error.kind, outcome.error.retryable) == ("connection", True)
    outcome = await drain(auth=None)
    assert outcome.error is not None
    assert outcome.error.kind == "schema"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with six messages in the topic `orders`."""
    with socket.socket() as wanted:
        if wanted.connect_ex(("127.0.0.1", int(ADDRESS.rpartition(":")[2]))) == 0:
            pytest.skip("another server has the one port the gateway can be reached at")
    with running_kafka(tmp_path_factory.mktemp("kafka")) as address:
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "log_level": 2})
        for n in range(6):
            producer.produce("orders", json.dumps({"n": n}).encode(), key=str(n).encode())
        assert producer.flush(60) == 0
        yield address


@pytest.mark.slow
async def test_offsets_are_committed_when_the_batch_is_recorded_and_not_before(broker: str, drain: Drain) -> None:
    """INV-174."""
    assert broker == ADDRESS
    first = await drain(batch=6, recorded=False)
    assert first.error is None
    again = await drain(batch=6, recorded=False)
    assert sorted(each["data"]["n"] for each in again.data["messages"]) == list(range(6)), "nothing was committed"
    some = await drain(batch=4)
    rest = await drain(batch=50)
    both = [*some.data["messages"], *rest.data["messages"]]
    assert (some.data["count"], rest.data["count"]) == (4, 2)
    assert sorted(each["data"]["n"] for each in both) == list(range(6))
    one = both[0]
    assert (one["key"], one["topic"]) == (str(one["data"]["n"]), "orders")
    assert one["id"] == f"orders:{one['partition']}:{one['offset']}"
    none = await drain(batch=50, timeout_ms=1_000)
    assert none.data == {"source": "kafka", "messages": [], "count": 0, "acked": False}
