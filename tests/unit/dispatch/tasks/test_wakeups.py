"""Workers hear of tasks: through PostgreSQL in other processes, through SQS on a real server's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer
from tests.unit.dispatch.tasks.ground import Ground

from noetl.dispatch.signal import Signal
from noetl.dispatch.tasks.wakeups.port import Wakeup
from noetl.dispatch.tasks.wakeups.postgres import PostgresWakeups
from noetl.dispatch.tasks.wakeups.sqs import SqsWakeups
from noetl.errors import ConfigError, NotFound, Unavailable
from noetl.ledger.database import Database
from noetl.model.stream import Scope

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


async def test_messages_of_a_queue_wake_its_workers_and_are_taken_off_it(moto_url: str) -> None:
    sqs = boto3.client("sqs", "eu-west-1", endpoint_url=moto_url)
    queue = sqs.create_queue(QueueName="platform")["QueueUrl"]
    signal = Signal()
    wakeups = SqsWakeups({"ecs_platform": queue}, signal, region="eu-west-1", endpoint_url=moto_url)
    tasks = [Wakeup(f"task-{number}", "ecs_platform") for number in range(12)]
    await wakeups.wake(SCOPE, [*tasks, Wakeup("elsewhere", "dispatcher")])
    seen = signal.number
    received: list[str] = []
    while len(received) < 12:
        received += await wakeups.receive("ecs_platform", wait_seconds=1)
    assert sorted(received) == sorted(task.task_id for task in tasks)
    assert signal.number > seen
    assert await wakeups.receive("ecs_platform", wait_seconds=0) == []
    await wakeups.close()


async def test_a_queue_that_is_not_there_or_does_not_answer_says_so(moto_url: str) -> None:
    missing = SqsWakeups({"x": f"{moto_url}/123456789012/none"}, Signal(), region="eu-west-1", endpoint_url=moto_url)
    with pytest.raises(NotFound, match="SQS queue"):
        await missing.wake(SCOPE, [Wakeup("a", "x")])
    away = SqsWakeups({"x": "http://127.0.0.1:9/q"}, Signal(), region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="does not answer"):
        await away.wake(SCOPE, [Wakeup("a", "x")])
    with pytest.raises(ConfigError):
        SqsWakeups({}, Signal())


async def test_a_retry_wakes_workers_again(ground: Ground) -> None:
    heard: list[str] = []

    class Noting:
        async def wake(self, scope: Scope, tasks: list[Wakeup]) -> None:
            heard.extend(task.task_id for task in tasks)

        async def close(self) -> None:
            return None

    noting = Ground(ground.database, ground.ledger, ground.home, node=5, payloads=ground.payloads, wakeups=Noting())
    await noting.deploy()
    (grant,) = await noting.claim()
    assert heard == [grant.lease.task_id]
    await noting.expire(grant.lease.task_id)
    await noting.engine.reaper.sweep()
    await noting.drain()
    assert heard == [grant.lease.task_id] * 2
    await asyncio.wait_for(noting.engine.close(), 10)
