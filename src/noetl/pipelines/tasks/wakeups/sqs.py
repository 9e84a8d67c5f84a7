"""Wake-ups through Amazon SQS: one message per task with its id alone; a worker that gets it looks for tasks.

A message reaches one process. So a process takes messages only while somebody in it waits for tasks of that queue, and
leaves to others what it got too late.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson

from noetl.engine.dispatch.polling import Signal
from noetl.errors import ConfigError, NoetlError, OutsideUnavailable
from noetl.model.stream import Scope
from noetl.pipelines.tasks.functions.aws import client_of, translated
from noetl.pipelines.tasks.wakeups.port import Wakeup

RECEIVE_SECONDS: Final = 5
"""How long one request waits for messages, and so how long the end of a process may wait for it."""
AGAIN_SECONDS: Final = 1.0
LONGEST_PAUSE: Final = 30.0
"""Between two tries of a queue that does not answer; who waits for tasks looks by himself meanwhile."""
_AT_ONCE: Final = 10
"""Messages SQS takes or gives in one request."""

_log = logging.getLogger(__name__)


class SqsWakeups:
    """Sends to the queue of each runtime and hears from it; workers of runtimes without one look by themselves."""

    def __init__(
        self,
        queues: Mapping[str, str],
        signal: Signal,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        receive_seconds: int = RECEIVE_SECONDS,
    ) -> None:
        if not queues:
            raise ConfigError("no SQS queue is given", hint="name a queue URL per runtime")
        self._queues = dict(queues)
        self._signal = signal
        self._region = region
        self._endpoint = endpoint_url
        self._receive_seconds = receive_seconds
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._waiting: Counter[str] = Counter()
        """How many wait for what a queue tells."""
        self._needed = {queue: asyncio.Event() for queue in self._queues.values()}
        self._listeners: list[asyncio.Task[None]] = []

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

    def listen(self) -> None:
        """Take messages off the queues while somebody waits for them, until closed."""
        self._listeners = [asyncio.create_task(self._hear(queue), name="noetl-task-listener") for queue in self._needed]

    @contextmanager
    def awaited(self, runtimes: Sequence[str]) -> Iterator[None]:
        """Have the queues of these runtimes listened to for the time of the block."""
        queues = {self._queues[runtime] for runtime in runtimes if runtime in self._queues}
        for queue in queues:
            self._waiting[queue] += 1
            self._needed[queue].set()
        try:
            yield
        finally:
            for queue in queues:
                self._waiting[queue] -= 1
                if not self._waiting[queue]:
                    self._needed[queue].clear()

    async def receive(self, queue: str) -> int:
        """Wait for messages of a queue, wake who waits in this process, and return how many were taken off."""
        client = await self._connected()
        with translated(f"the SQS queue {queue}"):
            answer = await asyncio.to_thread(
                client.receive_message,
                QueueUrl=queue,
                MaxNumberOfMessages=_AT_ONCE,
                WaitTimeSeconds=self._receive_seconds,
            )
            messages = answer.get("Messages", [])
            if not messages:
                return 0
            entries = [
                {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]} for place, message in enumerate(messages)
            ]
            if not self._waiting[queue]:
                # Nobody here looks any more; somebody elsewhere may.
                back = [{**entry, "VisibilityTimeout": 0} for entry in entries]
                await asyncio.to_thread(client.change_message_visibility_batch, QueueUrl=queue, Entries=back)
                return 0
            # Woken first: a message that could not be taken off comes again, and does no harm.
            self._signal.touch()
            await asyncio.to_thread(client.delete_message_batch, QueueUrl=queue, Entries=entries)
            return len(messages)

    async def close(self) -> None:
        """Stop listening and let go of the connection."""
        for listener in self._listeners:
            listener.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def _hear(self, queue: str) -> None:
        pause = 0.0
        while True:
            await self._needed[queue].wait()
            try:
                await self.receive(queue)
                if pause:
                    _log.info("the SQS queue %s answers again", queue)
                pause = 0.0
            except Exception as problem:
                # Whatever it was, a process that no longer listens would look healthy and be woken by nobody.
                if not pause:
                    expected = isinstance(problem, NoetlError)
                    _log.warning("no wake-ups are heard for now: %s", problem, exc_info=None if expected else problem)
                pause = min(pause * 2 or AGAIN_SECONDS, LONGEST_PAUSE)
                await asyncio.sleep(pause)

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
            raise OutsideUnavailable(f"SQS did not take {len(answer['Failed'])} of {len(entries)} messages for {queue}")

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(client_of, "sqs", self._region, self._endpoint)
            return self._client
