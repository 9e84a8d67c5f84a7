"""The nats tool against a real server with JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig

from noetl.engine.tools.nats.tool import NatsTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Credential
from noetl.engine.tools.resources import WorkerResources

pytestmark = pytest.mark.service

CallOf = Callable[..., Call]
Do = Callable[..., Any]
tool = NatsTool()


@pytest.fixture
async def server(nats_url: str) -> AsyncIterator[Client]:
    """A connection of the test's own."""
    client = await nats.connect(nats_url, user="u", password="p")
    yield client
    await client.close()


@pytest.fixture
def do(call_of: CallOf, credentials: dict[str, Credential], nats_url: str) -> Do:
    """Do an operation: `await do("kv_get", bucket=..., key=...)`."""
    credentials["broker"] = Credential("broker", "nats", {"url": nats_url, "user": "u", "password": "p"})

    async def run(
        operation: str,
        *,
        auth: Any = "broker",
        task: str = "row-1",
        limit: float = 30.0,
        bound: Any = None,
        **options: Any,
    ) -> Outcome:
        options["operation"] = operation
        return await tool.run(call_of("nats", options=options, auth=auth, key=task, timeout=limit, input=bound))

    return run


def name() -> str:
    return f"t{uuid4().hex[:12]}"


def kind_of(outcome: Outcome) -> str:
    assert outcome.error is not None, outcome
    return outcome.error.kind


async def test_values_are_put_read_listed_and_deleted(do: Do, server: Client) -> None:
    bucket = name()
    await server.jetstream().create_key_value(bucket=bucket)
    assert (await do("kv_keys", bucket=bucket)).data == {"bucket": bucket, "keys": [], "count": 0}
    put = await do("kv_put", bucket=bucket, key="a.b", value={"n": [1, 2]})
    assert put.data == {"bucket": bucket, "key": "a.b", "revision": 1}
    await do("kv_put", bucket=bucket, key="a.c", bound={"value": "007"})
    assert (await do("kv_get", bucket=bucket, key="a.b")).data["value"] == {"n": [1, 2]}
    got = (await do("kv_get", bucket=bucket, key="a.c")).data
    assert got == {"bucket": bucket, "key": "a.c", "value": "007", "revision": 2}
    assert (await do("kv_keys", bucket=bucket)).data["keys"] == ["a.b", "a.c"]
    assert (await do("kv_keys", bucket=bucket, key="*.c")).data["keys"] == ["a.c"]
    assert (await do("kv_delete", bucket=bucket, key="a.b")).status == "ok"
    assert kind_of(await do("kv_get", bucket=bucket, key="a.b")) == "not_found"
    assert (await do("kv_keys", bucket=bucket)).data["keys"] == ["a.c"]


async def test_objects_are_put_read_listed_and_deleted(do: Do, server: Client) -> None:
    bucket = name()
    await server.jetstream().create_object_store(bucket=bucket)
    assert (await do("object_list", bucket=bucket)).data["objects"] == []
    text = "x" * 300_000
    assert (await do("object_put", bucket=bucket, name="big", value=text)).data["size"] == 300_000
    assert (await do("object_get", bucket=bucket, name="big")).data["value"] == text
    listed = (await do("object_list", bucket=bucket)).data
    assert [(each["name"], each["size"]) for each in listed["objects"]] == [("big", 300_000)]
    assert (await do("object_delete", bucket=bucket, name="big")).status == "ok"
    assert kind_of(await do("object_get", bucket=bucket, name="big")) == "not_found"
    assert (await do("object_list", bucket=bucket)).data["count"] == 0


async def test_another_try_at_the_same_task_publishes_no_second_message(do: Do, server: Client) -> None:
    stream = name()
    await server.jetstream().add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
    first = await do("js_publish", subject=f"{stream}.a", value={"n": 1}, headers={"X-Origin": "test"}, task="row-1")
    again = await do("js_publish", subject=f"{stream}.a", value={"n": 1}, task="row-1")
    other = await do("js_publish", subject=f"{stream}.a", value={"n": 2}, task="row-2")
    assert first.data == {"stream": stream, "sequence": 1, "duplicate": False}
    assert again.data == {"stream": stream, "sequence": 1, "duplicate": True}
    assert other.data["sequence"] == 2
    got = (await do("js_get_msg", stream=stream, sequence=1)).data
    assert (got["subject"], got["value"], got["headers"]["X-Origin"]) == (f"{stream}.a", {"n": 1}, "test")
    assert (await do("js_get_msg", stream=stream, subject=f"{stream}.a")).data["value"] == {"n": 2}
    assert kind_of(await do("js_get_msg", stream=stream, sequence=9)) == "not_found"


async def test_messages_are_consumed_in_bounded_batches(do: Do, server: Client) -> None:
    stream = name()
    await server.jetstream().add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
    for n in range(3):
        await server.jetstream().publish(f"{stream}.a", b"%d" % n)
    first = (await do("js_consume", stream=stream, consumer="reader", batch=2, timeout=5)).data
    assert [each["value"] for each in first["messages"]] == ["0", "1"]
    second = (await do("js_consume", stream=stream, consumer="reader", batch=2, timeout=0.2)).data
    assert [(each["value"], each["sequence"], each["deliveries"]) for each in second["messages"]] == [("2", 3, 1)]
    assert (await do("js_consume", stream=stream, consumer="reader", timeout=0.1)).data["count"] == 0
    assert kind_of(await do("js_consume", stream=name(), timeout=0.1)) == "not_found"


async def test_a_plain_message_reaches_its_subscriber(do: Do, server: Client) -> None:
    subject = name()
    subscription = await server.subscribe(subject)
    await server.flush()
    assert (await do("publish", subject=subject, value="hello")).data == {"subject": subject, "bytes": 5}
    assert (await subscription.next_msg(timeout=10)).data == b"hello"


async def test_what_is_not_there_is_not_found(do: Do) -> None:
    for operation in ("kv_get", "kv_put", "kv_keys", "kv_delete", "object_get", "object_list"):
        outcome = await do(operation, bucket="gone", key="k", value="v")
        assert kind_of(outcome) == "not_found", operation
        assert outcome.error.retryable is False
    assert kind_of(await do("js_publish", subject=name(), value="v")) == "not_found"


async def test_problems_say_what_is_wrong(do: Do, credentials: dict[str, Credential]) -> None:
    credentials["web"] = Credential("web", "bearer", {"token": "t"})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"operation": "kv_fly"}, "kv_fly"),
        ({"operation": "kv_get", "key": "a"}, "needs bucket"),
        ({"operation": "kv_put", "bucket": "b", "key": "a"}, "needs value"),
        ({"operation": "kv_get", "bucket": "no good", "key": "a"}, "kv_get"),
        ({"operation": "kv_get", "bucket": "b", "key": "a", "auth": "web"}, "nats is needed"),
        ({"operation": "kv_get", "bucket": "b", "key": "a", "auth": None}, "needs a server"),
        ({"operation": "js_consume", "stream": "s", "batch": 0}, "batch"),
        ({"operation": "js_get_msg", "stream": "s"}, "needs sequence"),
        ({"operation": "publish", "subject": "s", "value": "v", "headers": "x"}, "headers"),
    ]
    for options, word in cases:
        outcome = await do(**options)
        assert kind_of(outcome) == "schema", options
        assert word in outcome.error.message


async def test_a_wrong_password_is_an_auth_problem_and_is_not_told(do: Do, credentials: Any, nats_url: str) -> None:
    credentials["broker"] = Credential("broker", "nats", {"url": nats_url, "user": "u", "password": "s3cret"})
    outcome = await do("publish", subject="a", value="v")
    assert (kind_of(outcome), outcome.error.retryable) == ("auth", False)
    assert "s3cret" not in repr(outcome)


async def test_a_server_that_is_not_there_may_be_tried_again(do: Do) -> None:
    outcome = await do("publish", subject="a", value="v", auth={"url": "nats://u:s3cret@127.0.0.1:1"})
    assert (kind_of(outcome), outcome.error.retryable) == ("connection", True)
    assert "s3cret" not in repr(outcome)


async def test_tasks_share_a_connection_and_a_lost_one_is_made_anew(do: Do, resources: WorkerResources) -> None:
    await asyncio.gather(*(do("publish", subject="a", value="v") for _ in range(10)))
    (made,) = [task.result() for key, task in resources._made.items() if key[0] == "nats"]
    before = await made.client()
    assert await made.client() is before
    await before.close()
    assert (await do("publish", subject="a", value="v")).status == "ok"
    assert await made.client() is not before


async def test_a_call_ends_at_its_time_limit(do: Do, server: Client) -> None:
    stream = name()
    await server.jetstream().add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
    outcome = await do("js_consume", stream=stream, timeout=600, limit=0.3)
    assert (kind_of(outcome), outcome.error.retryable) == ("timeout", True)
