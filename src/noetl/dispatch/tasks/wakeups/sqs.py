"""Wake-ups through Amazon SQS: one message per task with its id alone; a worker that gets it looks for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from noetl.dispatch.signal import Signal
from noetl.dispatch.tasks.aws import client_of, translated
from noetl.dispatch.tasks.wakeups.port import Wakeup
from noetl.errors import ConfigError, Unavailable
from noetl.model.stream import Scope

_AT_ONCE: Final = 10
"""Messages SQS takes in one request."""


class SqsWakeups:
    """Sends to the queue of each runtime; runtimes without one are woken by `fallback` alone."""

    def __init__(
        self, queues: Mapping[str, str], signal: Signal, *, region: str | None = None, endpoint_url: str | None = None
    ) -> None:
        if not queues:
            raise ConfigError("no SQS queue is given", hint="name a queue URL per runtime")
        self._queues = dict(queues)
        self._signal = signal
        self._region = region
        self._endpoint = endpoint_url
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def wake(self, scope: Scope, tasks: Sequence[Wakeup]) -> None:
        """Send one message per task to the queue of its runtime."""
        self._signal.touch()
        by_queue: dict[str, list[Wakeup]] = {}
        for task in tasks:
            if task.runtime in self._queues:
                by_queue.setdefault(self._queues[task.runtime], []).append(task)
        for queue, some in by_queue.items():
            for start in range(0, len(some), _AT_ONCE):
                await self._send(scope, queue, some[start : start + _AT_ONCE])

    async def receive(self, runtime: str, *, wait_seconds: int = 20) -> list[str]:
        """Wait for messages of a runtime, take them off the queue, wake who waits in this process, return the task ids."""
        queue = self._queues[runtime]
        client = await self._connected()
        with translated(f"the SQS queue {queue}"):
            answer = await asyncio.to_thread(
                client.receive_message, QueueUrl=queue, MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=wait_seconds
            )
            messages = answer.get("Messages", [])
            if messages:
                # Taken off at once: the message is only news, and the task itself says who may run it.
                entries = [
                    {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]}
                    for place, message in enumerate(messages)
                ]
                await asyncio.to_thread(client.delete_message_batch, QueueUrl=queue, Entries=entries)
                self._signal.touch()
        return [orjson.loads(message["Body"])["task_id"] for message in messages]

    async def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def _send(self, scope: Scope, queue: str, tasks: Sequence[Wakeup]) -> None:
        client = await self._connected()
        entries = [
            {
                "Id": str(place),
                "MessageBody": orjson.dumps(
                    {"task_id": task.task_id, "tenant": scope.tenant_id, "organization": scope.organization_id}
                ).decode(),
            }
            for place, task in enumerate(tasks)
        ]
        with translated(f"the SQS queue {queue}"):
            answer = await asyncio.to_thread(client.send_message_batch, QueueUrl=queue, Entries=entries)
        if answer.get("Failed"):
            raise Unavailable(f"SQS did not take {len(answer['Failed'])} of {len(entries)} messages for {queue}")

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(client_of, "sqs", self._region, self._endpoint)
            return self._client
