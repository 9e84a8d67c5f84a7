"""Records facts that decide nothing: durable when the stream has acknowledged them, in the ledger a moment later.

A fact with an idempotency key or an expected version decides something; it is appended as everything else is.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from noetl.errors import NoetlError, NotFound, Unavailable
from noetl.faults import reach
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.postgres.write_path import WritePath
from noetl.kernel.stream.encoding import fact_message
from noetl.kernel.stream.losses.journal import Journal
from noetl.kernel.stream.port import EventStream, Message
from noetl.model.catalogue import event_type
from noetl.model.event import Draft
from noetl.model.mark import ReadToken
from noetl.model.validate import validate

BATCH_FACTS: Final = 1000
_OPEN_STREAM: Final = re.compile(r"^(execution/[0-9]+/)?business/")


def decides_nothing(draft: Draft) -> bool:
    """Tell whether nothing is decided by a fact: its type is observed, no key arbitrates it, nor does its stream."""
    kind = event_type(draft.event_type)
    observed = kind is not None and kind.observed
    return observed and draft.idempotency_key is None and _OPEN_STREAM.match(draft.stream_id) is not None


class _Acknowledged(NamedTuple):
    """Which stream has a fact, and where."""

    created: str
    sequence: int


class Facts:
    """Publishes the facts of one process, those that come together in one batch."""

    def __init__(
        self,
        stream: EventStream,
        way: WritePath,
        journal: Journal,
        observe: Callable[[float], None] = lambda seconds: None,
        checks: Checks | None = None,
    ) -> None:
        self._stream = stream
        self._way = way
        self._journal = journal
        self._observe = observe
        self._checks = checks or Checks()
        self._created: str | None = None
        self._last = 0
        """The last sequence that was acknowledged."""
        self._waiting: deque[tuple[Message, asyncio.Future[_Acknowledged]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    def takes(self, draft: Draft) -> bool:
        """Tell whether a fact goes through the stream now: it decides nothing, and nothing decides on its stream."""
        return self._way.waits and decides_nothing(draft)

    async def record(self, draft: Draft) -> ReadToken:
        """Return when the fact is durable."""
        stream = draft.stream
        validate(stream, [draft])
        self._checks.look([draft])
        shard = stream.shard
        answer: asyncio.Future[_Acknowledged] = asyncio.get_running_loop().create_future()
        self._waiting.append((fact_message(stream, shard, draft), answer))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send(), name="noetl-facts")
        created, sequence = await answer
        return ReadToken(draft.execution_id, draft.event_id, shard, sequence, created)

    async def close(self) -> None:
        """Wait until everything that was taken is acknowledged or refused."""
        if self._sender is not None:
            await self._sender

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_FACTS))]
                try:
                    created, sequences = await self._publish([message for message, _ in batch])
                except Exception as problem:
                    for _, answer in batch:
                        if not answer.done():
                            answer.set_exception(problem)
                    continue
                for (_, answer), sequence in zip(batch, sequences, strict=True):
                    if not answer.done():
                        answer.set_result(_Acknowledged(created, sequence))
        finally:
            self._sender = None
            for _, answer in self._waiting:
                if not answer.done():
                    answer.set_exception(Unavailable("the stream was closed before this fact was published"))

    async def _publish(self, messages: list[Message]) -> tuple[str, list[int]]:
        reach("fact.before_publish")
        began = time.perf_counter()
        try:
            if self._created is None:
                self._created = (await self._stream.state()).created
            published = await self._stream.publish(messages)
        except NotFound:
            # It was wiped, and nothing of these is in it. What it lost is told by whoever follows the notes.
            self._created, self._last = (await self._stream.open()).created, 0
            published = await self._stream.publish(messages)
        self._observe(time.perf_counter() - began)
        reach("fact.after_publish")
        sequences = [one.sequence for one in published]
        if any(one.sequence <= self._last and not one.duplicate for one in published):
            # Sequences went back: the stream may be another one. Facts are known by their ids, so an old name does no harm.
            self._last = 0
            with suppress(NoetlError):
                self._created = (await self._stream.state()).created
        self._last = max(self._last, *sequences)
        self._journal.note(self._created, messages, sequences)
        return self._created, sequences
