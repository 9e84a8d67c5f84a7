"""The subscription tool on Pub/Sub, against a stand-in that speaks the service's protocol; the service itself was not tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.subscription.tool import SubscriptionTool
from noetl.engine.worker.held_work import Settling

PLACE = "projects/shop/subscriptions/orders"
CallOf = Callable[..., Call]
tool = SubscriptionTool()


class Service:
    """Holds messages by the numbers they are acknowledged with."""

    def __init__(self, *texts: bytes) -> None:
        self.waiting = [f"ack-{n}" for n, _ in enumerate(texts)]
        self.texts = dict(zip(self.waiting, texts, strict=True))
        self.held: list[str] = []
        self.asked: list[tuple[str, Any]] = []

    def pull(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.subscription != PLACE:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        given, self.waiting = self.waiting[: request.max_messages], self.waiting[request.max_messages :]
        self.held += given
        received = [
            {"ack_id": one, "message": {"data": self.texts[one], "message_id": one[4:], "attributes": {"of": "test"}}}
            for one in given
        ]
        return types.PullResponse(received_messages=received)

    def acknowledge(self, request: Any, _context: Any) -> Empty:
        self.held = [one for one in self.held if one not in request.ack_ids]
        return Empty()

    def modify(self, request: Any, _context: Any) -> Empty:
        if request.ack_deadline_seconds == 0:
            self.waiting += [one for one in self.held if one in request.ack_ids]
            self.held = [one for one in self.held if one not in request.ack_ids]
        return Empty()


def _handler(function: Any, request: Any) -> Any:
    def written(answer: Any) -> bytes:
        return bytes(answer.SerializeToString() if isinstance(answer, Empty) else type(answer).serialize(answer))

    return grpc.unary_unary_rpc_method_handler(function, request.deserialize, written)


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    """A service with three messages, and its address."""
    service = Service(b'{"n": 0}', b'{"n": 1}', b"two")
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {
        "Pull": _handler(service.pull, types.PullRequest),
        "Acknowledge": _handler(service.acknowledge, types.AcknowledgeRequest),
        "ModifyAckDeadline": _handler(service.modify, types.ModifyAckDeadlineRequest),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, f"127.0.0.1:{port}"
    server.stop(None)


async def test_messages_are_acknowledged_when_they_are_recorded_and_given_back_if_not(
    call_of: CallOf, credentials: dict[str, Credential], service: tuple[Service, str]
) -> None:
    """INV-174."""
    there, address = service
    credentials["bus"] = Credential("bus", "pubsub", {"endpoint": address, "project_id": "shop"})

    async def drain(**options: Any) -> tuple[Outcome, Settling]:
        given = {"source": "pubsub", "subscription": PLACE, "timeout_ms": 3000, **options}
        settling = Settling()
        call = msgspec.structs.replace(call_of("subscription", options=given, auth="bus"), settling=settling)
        return await tool.run(call), settling

    outcome, settling = await drain(batch=2)
    assert outcome.error is None
    assert [(one["id"], one["data"]) for one in outcome.data["messages"]] == [("0", {"n": 0}), ("1", {"n": 1})]
    assert outcome.data["messages"][0]["headers"] == {"of": "test"}
    assert there.held == ["ack-0", "ack-1"]
    await settling.settle(recorded=True)
    assert there.held == []
    outcome, settling = await drain(subscription="orders")
    assert [one["data"] for one in outcome.data["messages"]] == ["two"]
    await settling.settle(recorded=False)
    assert (there.held, there.waiting) == ([], ["ack-2"])
    outcome, _ = await drain(subscription="projects/shop/subscriptions/other")
    assert outcome.error is not None
    assert outcome.error.kind == "not_found"
