"""The metrics of roles that have no API: a runtime goes in, series that stand from the start come out at an endpoint.

What is counted is this process's own; how far shards are is read from database and stream when it is asked for, at most
once a second. Nothing is labelled by execution or tenant.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Literal

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Metric, generate_latest

from noetl import __version__
from noetl.errors import NoetlError
from noetl.kernel.projections.wakeups import durable_of, far_durables_of
from noetl.model.stream import SHARD_COUNT
from noetl.runtime.metrics.endpoint import open_endpoint
from noetl.runtime.metrics.payload_tiers import FabricMetrics
from noetl.runtime.metrics.projections import ProjectedCounts, ProjectionMetrics, StoreMetrics, projection_lags
from noetl.runtime.metrics.relay import RELAYED, RelayMetrics
from noetl.runtime.metrics.worker import WorkerMetrics
from noetl.runtime.metrics.write_path import MaterializerMetrics, ShadowMetrics, open_waiting
from noetl.runtime.projections.projector import projector_name
from noetl.runtime.streams.opening import mirrors, open_stream, stream_name
from noetl.runtime.wiring import Runtime

READ_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0
"""How long database and stream are waited for; what they did not tell is shown as it was."""

HoldingRole = Literal["relay", "projector", "materializer"]
Said = Callable[[str], None]
Read = Callable[[], Awaitable[None]]


class RoleMetrics:
    """The series that all roles with shards have, and the reading of what others know."""

    def __init__(self, role: HoldingRole, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.held: frozenset[int] = frozenset()
        """The shards that this process has."""
        self._clock = clock
        self._reads: list[Read] = []
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        build = Gauge("noetl_build_info", "Which program this is.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self._held = Gauge(
            "noetl_shards_held", "Shards that this process holds, by role.", ["role"], registry=self.registry
        ).labels(role)
        self._failures = Counter(
            "noetl_backlog_read_failures", "Times the backlog could not be read from database or stream.",
            registry=self.registry,
        )  # fmt: skip
        FabricMetrics(self.registry)

    def hold(self, shards: Collection[int]) -> None:
        """Show how many shards this process has."""
        self.held = frozenset(shards)
        self._held.set(len(self.held))

    def read_with(self, read: Read) -> None:
        """Let this be read before metrics are shown."""
        self._reads.append(read)

    async def exposition(self) -> tuple[bytes, str]:
        """Return all metrics as text, with its media type."""
        async with self._reading:
            if self._clock() - self._read_at >= READ_SECONDS:
                await asyncio.gather(*map(self._attempt, self._reads))
                self._read_at = self._clock()
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    async def _attempt(self, read: Read) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await read()
        except (NoetlError, TimeoutError):
            # The other metrics are worth having even then, and this counter says that these are old.
            self.unread()

    def unread(self) -> None:
        """Count that something could not be read."""
        self._failures.inc()


class ReaderLag:
    """How far the durable readers of this process are behind in the shards that it holds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Gauge(
            "stream_reader_lag_messages", "Messages of a shard that its durable reader has not acknowledged.", ["shard"],
            registry=registry,
        )  # fmt: skip
        self.show({})

    def show(self, messages: dict[int, int]) -> None:
        """Show what each shard's reader is behind; shards that are not read here show zero."""
        for shard in range(SHARD_COUNT):
            self._lag.labels(str(shard)).set(messages.get(shard, 0))


@asynccontextmanager
async def _reader_lag(
    runtime: Runtime, metrics: RoleMetrics, stream: Literal["events", "writes"], durable: Callable[[int], str]
) -> AsyncIterator[None]:
    """Show how far the durable of each held shard is behind, where readers read a stream outside PostgreSQL."""
    shown = ReaderLag(metrics.registry)
    if not mirrors(runtime.settings) or runtime.settings.runtime.metrics_port is None:
        yield
        return
    async with open_stream(runtime.settings, runtime.database, stream) as opened:

        async def read() -> None:
            mine = {(durable(shard), shard) for shard in metrics.held}
            shown.show({one.shard: one.messages for one in await opened.lags() if (one.durable, one.shard) in mine})

        metrics.read_with(read)
        yield


@asynccontextmanager
async def open_relay_metrics(runtime: Runtime, said: Said) -> AsyncIterator[tuple[RoleMetrics, RelayMetrics]]:
    """Tell what a relay does for the time of the block."""
    metrics = RoleMetrics("relay")
    relay, name = RelayMetrics(metrics.registry), stream_name(runtime.settings, "events")

    async def read() -> None:
        async with runtime.database.transaction(None, "relay") as connection:
            relay.show_waiting(await connection.fetch(RELAYED, name))

    metrics.read_with(read)
    async with open_endpoint(runtime.settings, "relay", metrics, said):
        yield metrics, relay


@asynccontextmanager
async def open_projector_metrics(
    runtime: Runtime, said: Said, *, from_stream: bool
) -> AsyncIterator[tuple[RoleMetrics, Runtime]]:
    """Tell what a projector does for the time of the block; gives the runtime whose projections are counted."""
    metrics, settings = RoleMetrics("projector"), runtime.settings
    counts = ProjectedCounts(metrics.registry)
    own, far = durable_of(projector_name(settings)), far_durables_of(settings.runtime.cluster_id)
    async with AsyncExitStack() as stack:
        if not from_stream:
            # On the far side of a stream there is no ledger that could be ahead.
            projections, stores = ProjectionMetrics(metrics.registry), StoreMetrics(metrics.registry)

            async def read() -> None:
                projections.show(await projection_lags(runtime.database))
                await stores.read(runtime.database, runtime.projections)

            metrics.read_with(read)

        def durable(shard: int) -> str:
            return f"{far}-{shard}" if from_stream else own

        await stack.enter_async_context(_reader_lag(runtime, metrics, "events", durable))
        await stack.enter_async_context(open_endpoint(settings, "projector", metrics, said))
        yield metrics, counts.counted(runtime)


@asynccontextmanager
async def open_materializer_metrics(
    runtime: Runtime, said: Said
) -> AsyncIterator[tuple[RoleMetrics, MaterializerMetrics]]:
    """Tell what a materializer does for the time of the block, in the shadow of the ledger or not."""
    metrics, shadow = RoleMetrics("materializer"), runtime.settings.event_store.write_path == "shadow"
    writing = MaterializerMetrics(metrics.registry)
    compared = ShadowMetrics(metrics.registry)

    word = "shadow" if shadow else "materializer"
    async with (
        open_waiting(runtime) as waiting,
        _reader_lag(runtime, metrics, "events" if shadow else "writes", lambda shard: f"{word}-{shard}"),
        open_endpoint(runtime.settings, "materializer", metrics, said),
    ):

        async def read() -> None:
            async with runtime.database.transaction(None, "materializer") as connection:
                await compared.read(connection)
            found = await waiting()
            writing.show_waiting(found)
            if found.stale:
                metrics.unread()

        metrics.read_with(read)
        yield metrics, writing


def all_role_series() -> list[Metric]:
    """Return every series that a role without an API may have, each once, for the reference page."""
    role = RoleMetrics("relay")
    RelayMetrics(role.registry)
    ProjectedCounts(role.registry)
    ProjectionMetrics(role.registry)
    MaterializerMetrics(role.registry)
    ShadowMetrics(role.registry)
    ReaderLag(role.registry)
    WorkerMetrics(role.registry, 0)
    return list(role.registry.collect())
