"""Workers hear of tasks: through PostgreSQL in other processes, through SQS on a real server's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.engine.dispatch.polling import Signal
from noetl.errors import ConfigError, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.pipelines.tasks.wakeups.port import Wakeup
from noetl.pipelines.tasks.wakeups.postgres import PostgresWakeups
from noetl.pipelines.tasks.wakeups.sqs import SqsWakeups
from noetl.runtime.assembly.pipelines import open_pipelines
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.testing.engines.short_leases import until

SCOPE = Scope("default", "default")


@pytest.fixture
def moto_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that speaks AWS's protocols."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


async def test_another_process_hears_of_a_task(database: Database) -> None:
    near, far = Signal(), Signal()
    sender, hearer = PostgresWakeups(database, near), PostgresWakeups(database, far)
    hearer.listen()
    await far.wait(0, 10)  # it touches its signal once it listens
    seen = far.number
    await sender.wake(SCOPE, [Wakeup("a", "dispatcher"), Wakeup("b", "dispatcher")])
    assert near.number == 1
    await far.wait(seen, 10)
    assert far.number > seen
    await sender.close()
    await hearer.close()


@pytest.fixture
def queue(moto_url: str) -> Queue:
    """A queue on it."""
    client = boto3.client("sqs", "eu-west-1", endpoint_url=moto_url)
    return Queue(client, client.create_queue(QueueName="tasks")["QueueUrl"], moto_url)


class Queue:
    """A queue of a real server, asked by AWS's own client."""

    def __init__(self, client: Any, url: str, server: str) -> None:
        self.client = client
        self.url = url
        self.server = server

    def wakeups(self, signal: Signal, *runtimes: str) -> SqsWakeups:
        """Return wake-ups of some runtimes through this queue."""
        queues = dict.fromkeys(runtimes, self.url)
        return SqsWakeups(queues, signal, region="eu-west-1", endpoint_url=self.server, receive_seconds=1)

    def counts(self) -> tuple[int, int]:
        """Return how many messages wait, and how many were received and not taken off."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(told[names[0]]), int(told[names[1]])

    async def emptied(self) -> None:
        """Return when every message was taken off."""

        async def is_empty() -> bool:
            return await asyncio.to_thread(self.counts) == (0, 0)

        await until(is_empty, "an empty queue", within=20)


async def test_a_worker_of_another_process_is_woken_through_the_queue(testbed: TaskTestbed, queue: Queue) -> None:
    """INV-160."""
    signal = Signal()
    near = queue.wakeups(Signal(), "dispatcher")
    far = queue.wakeups(signal, "dispatcher")
    options = {"payloads": testbed.payloads, "poll_seconds": 600.0}
    sending = TaskTestbed(testbed.database, testbed.ledger, testbed.home, node=5, wakeups=near, **options)
    working = TaskTestbed(testbed.database, testbed.ledger, testbed.home, node=6, wakeups=far, signal=signal, **options)
    far.listen()
    claim = asyncio.create_task(working.tasks.claim("worker", ("dispatcher",), 100, 60))
    await far._needed[queue.url].wait()
    await sending.deploy()
    await sending.drain()
    # Nobody looks by himself within the test: only the message can have woken the worker.
    assert [grant.job for grant in await asyncio.wait_for(claim, 20)] == ["orders"]
    await queue.emptied()
    for one in (sending, working):
        await one.engine.close()


async def test_messages_are_taken_off_only_while_somebody_waits_for_them(queue: Queue) -> None:
    """INV-160."""
    signal = Signal()
    wakeups = queue.wakeups(signal, "ecs_platform")
    tasks = [Wakeup(f"task-{number}", "ecs_platform") for number in range(12)]
    await wakeups.wake(SCOPE, [*tasks, Wakeup("elsewhere", "dispatcher")])
    assert queue.counts() == (12, 0)
    seen = signal.number
    assert await wakeups.receive(queue.url) == 0
    assert (queue.counts(), signal.number) == ((12, 0), seen), "it is left to whoever waits elsewhere"
    wakeups.listen()
    with wakeups.awaited(("dispatcher",)), wakeups.awaited(("ecs_platform", "dispatcher")):
        await queue.emptied()
    assert signal.number > seen
    await wakeups.close()


async def test_a_queue_that_fails_is_listened_to_again(
    moto_url: str, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-160."""
    signal = Signal()
    late = queue.url.replace("/tasks", "/late")
    wakeups = SqsWakeups({"x": late}, signal, region="eu-west-1", endpoint_url=moto_url, receive_seconds=1)
    wakeups.listen()
    with wakeups.awaited(("x",)):

        async def is_told() -> bool:
            return "no wake-ups are heard for now" in caplog.text

        await until(is_told, "a warning", within=20)
        assert queue.client.create_queue(QueueName="late")["QueueUrl"] == late
        queue.client.send_message(QueueUrl=late, MessageBody="not even of ours")
        await asyncio.wait_for(signal.wait(0, None), 20)
    await wakeups.close()


async def test_a_process_whose_settings_name_queues_listens_to_them(
    owner_url: str, database: Database, queue: Queue, tmp_path: Path
) -> None:
    """INV-160."""
    given = {
        "runtime": {"home": str(tmp_path)},
        "database": {"url": owner_url},
        "tasks": {
            "wakeups": "sqs",
            "queues": [f"dispatcher={queue.url}"],
            "region": "eu-west-1",
            "endpoint": queue.server,
            "receive_seconds": 1,
        },
    }
    async with open_runtime(Settings.model_validate(given)) as runtime, open_pipelines(runtime, "worker") as pipelines:
        queue.client.send_message(QueueUrl=queue.url, MessageBody="{}")
        claim = asyncio.create_task(pipelines.engine.tasks(runtime.scope).claim("worker", ("dispatcher",), 1, 60))
        await queue.emptied()
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)


async def test_a_queue_that_is_not_there_or_does_not_answer_says_so(moto_url: str) -> None:
    missing = SqsWakeups({"x": f"{moto_url}/123456789012/none"}, Signal(), region="eu-west-1", endpoint_url=moto_url)
    with pytest.raises(NotFound, match="SQS queue"):
        await missing.wake(SCOPE, [Wakeup("a", "x")])
    away = SqsWakeups({"x": "http://127.0.0.1:9/q"}, Signal(), region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="does not answer"):
        await away.wake(SCOPE, [Wakeup("a", "x")])
    with pytest.raises(ConfigError):
        SqsWakeups({}, Signal())


async def test_a_retry_wakes_workers_again(testbed: TaskTestbed) -> None:
    heard: list[str] = []

    class Noting:
        async def wake(self, scope: Scope, tasks: list[Wakeup]) -> None:
            heard.extend(task.task_id for task in tasks)

        def listen(self) -> None:
            return None

        def awaited(self, runtimes: Sequence[str]) -> AbstractContextManager[None]:
            return nullcontext()

        async def close(self) -> None:
            return None

    noting = TaskTestbed(
        testbed.database, testbed.ledger, testbed.home, node=5, payloads=testbed.payloads, wakeups=Noting()
    )
    await noting.deploy()
    (grant,) = await noting.claim()
    assert heard == [grant.lease.task_id]
    await noting.expire(grant.lease.task_id)
    await noting.engine.reaper.sweep()
    await noting.drain()
    assert heard == [grant.lease.task_id] * 2
    await asyncio.wait_for(noting.engine.close(), 10)
