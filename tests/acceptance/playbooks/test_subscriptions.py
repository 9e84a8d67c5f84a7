"""INV-174: messages that a step takes are acknowledged once its end is recorded; whatever ends it before, they come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from noetl.engine.plan.state import State
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

pytestmark = pytest.mark.service

DRAIN = playbook(
    """
    workload: {gate: "", then: pass}
    workflow:
      - step: drain
        tool:
          - {name: take, kind: subscription, source: nats, operation: poll, auth: bus, stream: ORDERS, consumer: drain, batch: 50, timeout_ms: 3000, ack: on_success}
          - {name: wait, kind: http, url: "{{ gate }}"}
          - {name: then, kind: python, input: {then: "{{ then }}", took: "{{ take }}"}, code: "result = took if then == 'pass' else 1 / 0"}
        next: {arcs: [{step: each, when: "{{ drain.count > 0 }}"}]}
      - step: each
        loop: {in: "{{ drain.messages }}", iterator: message}
        tool: {kind: python, input: {n: "{{ iter.message.data.n }}"}, code: "result = n"}
    """
)


class Gate:
    """A server that lets nobody through until it is opened."""

    def __init__(self) -> None:
        self.url = ""
        self.waiting = asyncio.Semaphore(0)
        self.open = asyncio.Event()

    async def wait(self, _request: web.Request) -> web.Response:
        self.waiting.release()
        await self.open.wait()
        return web.json_response("through")


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    """Where executions are held."""
    gate = Gate()
    app = web.Application()
    app.router.add_get("/", gate.wait)
    async with TestServer(app) as server:
        gate.url = str(server.make_url("/"))
        yield gate
        gate.open.set()


@pytest.fixture
async def orders(playbooks: Playbooks, nats_url: str) -> AsyncIterator[JetStreamContext]:
    """A stream with three orders and its durable consumer, on a server that playbooks know as `bus`."""
    await playbooks.credential("bus", "nats", url=nats_url, user="u", password="p")
    client = await nats.connect(nats_url, user="u", password="p")
    context = client.jetstream()
    await context.add_stream(name="ORDERS", subjects=["orders.>"])
    await context.add_consumer("ORDERS", ConsumerConfig(durable_name="drain", ack_wait=120))
    for n in range(3):
        await context.publish("orders.new", f'{{"n": {n}}}'.encode())
    yield context
    await context.delete_stream("ORDERS")
    await client.close()


async def unacknowledged(orders: JetStreamContext) -> tuple[int, int]:
    """Return how many messages are out, and how many wait to be taken."""
    info = await orders.consumer_info("ORDERS", "drain")
    return info.num_ack_pending or 0, info.num_pending or 0


async def test_what_a_step_took_is_acknowledged_when_its_end_is_recorded(
    playbooks: Playbooks, orders: JetStreamContext, gate: Gate
) -> None:
    cancelled = await playbooks.start(DRAIN, {"gate": gate.url})
    await gate.waiting.acquire()
    assert await unacknowledged(orders) == (3, 0), "nothing is acknowledged while the step goes on"
    await playbooks.engine.cancel(playbooks.scope, cancelled.execution_id, reason="over", by="tests")
    assert (await playbooks.finished(cancelled.execution_id)).status == "CANCELLED"

    gate.open.set()
    failed = await playbooks.run(DRAIN, {"gate": gate.url, "then": "fail"})
    assert failed.status == "FAILED"

    state: State = await playbooks.run(DRAIN, {"gate": gate.url})
    assert state.status == "COMPLETED", state.error
    took = state.results["drain"].data
    assert (took["count"], took["acked"], took["source"]) == (3, True, "nats")
    assert sorted(message["data"]["n"] for message in took["messages"]) == [0, 1, 2]
    assert {message["deliveries"] for message in took["messages"]} == {3}, "each run before gave them back"
    assert sorted(state.results["each"].data["results"]) == [0, 1, 2]
    assert await unacknowledged(orders) == (0, 0)
    empty = await playbooks.run(DRAIN.replace("timeout_ms: 3000", "timeout_ms: 50"), {"gate": gate.url})
    assert empty.results["drain"].data == {"source": "nats", "messages": [], "count": 0, "acked": False}
