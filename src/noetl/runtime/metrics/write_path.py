"""The metrics of the write path: what waits for the materializer, what the stream lost, and how long it takes to acknowledge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from noetl.kernel.ledger.postgres.database import Connection
from noetl.kernel.stream.write_path.backlog import Waiting, WaitingWrites
from noetl.runtime.metrics.relay import ACK_BUCKETS
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.wiring import Runtime

ReadWaiting = Callable[[], Awaitable[Waiting]]
"""What asks how much is accepted and not in the ledger."""

_RESULTS: Final = ("equal", "missing", "different", "redelivered")
_COMPARED: Final = f"""
SELECT {", ".join(f"coalesce(sum({result}), 0)::bigint AS {result}" for result in _RESULTS)} FROM noetl.divergence
"""  # noqa: S608 - the words are our own


class MaterializerLag:
    """What waits for materializers, whoever they are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "materializer_lag_events", "Decided events and acknowledged facts that are not in the ledger yet.",
            registry=registry,
        )  # fmt: skip
        self._age = Gauge(
            "materializer_lag_seconds", "Age of the oldest decided event or acknowledged fact that is not in the ledger.",
            registry=registry,
        )  # fmt: skip
        self._refused = Counter(
            "stream_refused_messages", "Messages of writes without a MAC of this installation, which were not written.",
            registry=registry,
        )  # fmt: skip

    def show_waiting(self, waiting: Waiting) -> None:
        """Show what waits, of all tenants."""
        self._waiting.set(waiting.events)
        self._age.set(waiting.seconds)

    def refused(self, messages: int) -> None:
        """Count messages that nobody of this installation signed."""
        self._refused.inc(messages)


class WritePathMetrics(MaterializerLag):
    """The series of the write path in a server, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._acknowledged = Histogram(
            "publish_ack_seconds", "Seconds until the stream acknowledged a batch of facts.", buckets=ACK_BUCKETS,
            registry=registry,
        )  # fmt: skip

        self._lost = Gauge(
            "stream_lost_facts", "Facts that the stream acknowledged and lost before they were in the ledger, as all nodes recorded.",
            registry=registry,
        )  # fmt: skip
        self.lost_facts = 0

    def lost(self, facts: int) -> None:
        """Take note of how many acknowledged facts are gone."""
        self.lost_facts = facts
        self._lost.set(facts)

    def acknowledged(self, seconds: float) -> None:
        """Take note of how long a batch of facts waited for the stream."""
        self._acknowledged.observe(seconds)


class MaterializerMetrics(MaterializerLag):
    """The series of a materializer that is a process of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._written = Counter(
            "materializer_written", "Events that this process wrote into the ledger.", registry=registry
        )

    def written(self, events: int) -> None:
        """Count events that came to the ledger."""
        self._written.inc(events)


class ShadowMetrics:
    """What materializers in the shadow of the ledger found, in all."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._compared = Gauge(
            "shadow_compared_events", "Events that the shadow compared with the ledger, by what came of it.",
            ["result"], registry=registry,
        )  # fmt: skip
        for result in _RESULTS:
            self._compared.labels(result)

    async def read(self, connection: Connection) -> None:
        """Ask what was found so far."""
        row: Any = await connection.fetchrow(_COMPARED)
        for result in _RESULTS:
            self._compared.labels(result).set(row[result])


@asynccontextmanager
async def open_waiting(runtime: Runtime) -> AsyncIterator[ReadWaiting]:
    """Give what reads how much waits, in PostgreSQL and in the stream of writes where the settings name one.

    The stream is connected to when it is first asked for.
    """
    if not mirrors(runtime.settings):
        yield WaitingWrites(runtime.database, None).read
        return
    async with open_stream(runtime.settings, runtime.database, "writes") as writes:
        yield WaitingWrites(runtime.database, writes).read
