"""Metrics of one process: plain calls go in, Prometheus' text comes out. Nothing is labelled by execution or tenant.

Every series exists from the start with zero, so that a missing one means a missing process. What waits for workers is
read from the database when it is asked for, at most once a second.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter as Bag
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from noetl.catalog.job_states import JobLife, serving_lives
from noetl.errors import NoetlError
from noetl.ledger.database import Database
from noetl.ledger.transition import Transition
from noetl.model.catalogue import ENDING
from noetl.model.event import Draft
from noetl.project.stores import StoredByType
from noetl.runtime.alert_metrics import OPEN, AlertMetrics
from noetl.runtime.fabric_metrics import FabricMetrics
from noetl.runtime.projection_store_metrics import StoreMetrics
from noetl.runtime.projector_metrics import ProjectionMetrics, projection_lags
from noetl.runtime.relay_metrics import RelayMetrics
from noetl.runtime.schedules_metrics import STANDING, ScheduleMetrics
from noetl.runtime.write_path_metrics import WritePathMetrics, read_waiting

StageKind = Literal["loop", "fanout", "reduce"]
Direction = Literal["read", "written"]
EndStatus = Literal["COMPLETED", "FAILED", "CANCELLED"]

TIERS = ("memory", "ipc", "disk", "object")
POOLS = ("readers", "workers")
BACKLOG_SECONDS = 1.0
STATES_SECONDS = 15.0
WINDOW_SECONDS = 300.0
_WINDOW_FRAMES = 5_000
_HTTP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)

_BACKLOG = """
SELECT s.kind, sum(
    (SELECT count(*) FROM noetl.frame AS f WHERE f.stage_id = s.stage_id AND f.status = 'FREE'
        AND f.tenant_id = s.tenant_id AND f.organization_id = s.organization_id)
    + CASE WHEN s.total_rows IS NULL
        THEN (SELECT count(*) FROM noetl.command AS c WHERE c.stage_id = s.stage_id AND c.status = 'PENDING'
              AND c.tenant_id = s.tenant_id AND c.organization_id = s.organization_id
              AND c.execution_id = s.execution_id)
        ELSE greatest(0, ceil((s.total_rows - s.next_index)
             / greatest(1, coalesce((s.frame_policy ->> 'max_rows')::numeric, 1)))) END)::bigint AS waiting
FROM noetl.stage AS s GROUP BY s.kind
"""
_COMMANDS = "SELECT count(*) FROM noetl.command WHERE status = 'PENDING' AND available_at <= now()"


_FRAME_ENDS = frozenset(
    {
        "frame.committed", "frame.failed", "frame.abandoned", "frame.attempt_failed",
        "loop.shard.done", "loop.shard.failed", "loop.shard.abandoned", "loop.shard.attempt_failed",
    }
)  # fmt: skip


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(
        self,
        version: str,
        *,
        database: Database | None = None,
        stores: StoredByType | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = CollectorRegistry()
        self._database = database
        self._stores = stores
        self._clock = clock
        self._read_at = -math.inf
        self._states_at = -math.inf
        self._reading = asyncio.Lock()
        self._frames: deque[tuple[float, float]] = deque(maxlen=_WINDOW_FRAMES)
        self._leased: dict[int | None, float] = {}
        self._pools: dict[str, Callable[[], int]] = {}
        self._highest: dict[str, int] = {}
        self._add_series(version)

    def _add_series(self, version: str) -> None:
        registry = self.registry
        Gauge("noetl_build_info", "Which program this is.", ["version"], registry=registry).labels(version).set(1)
        self._executions_started = Counter("noetl_executions_started", "Executions started.", registry=registry)
        self._executions_ended = Counter(
            "noetl_executions_ended", "Executions ended, by how.", ["status"], registry=registry
        )
        self._commands = {
            word: Counter(f"noetl_commands_{word}", f"Commands {word}.", registry=registry)
            for word in ("issued", "claimed", "completed", "failed")
        }
        self._events = Counter("noetl_events_appended", "Events written to the ledger.", registry=registry)
        self._appends = Counter("noetl_event_appends", "Transactions that wrote events.", registry=registry)
        self._payload_bytes = Counter(
            "noetl_payload_bytes", "Payload bytes, by tier and direction.", ["tier", "direction"], registry=registry
        )
        self._backlog = Gauge(
            "frame_backlog_total", "Frames that wait for a worker, as the rows of open work tell.", ["stage_kind"],
            registry=registry,
        )  # fmt: skip
        self._command_backlog = Gauge("noetl_command_backlog", "Commands that wait for a worker.", registry=registry)
        self._jobs = Gauge(
            "noetl_jobs", "Jobs of DAGs that serve, by what starts them and by the state of their life.",
            ["started_by", "state"], registry=registry,
        )  # fmt: skip
        self._read_failed = Counter(
            "noetl_backlog_read_failures", "Times the backlog could not be read from the database.", registry=registry
        )
        p95 = Gauge(
            "frame_p95_lease_duration", "Seconds within which 95 of 100 frames ended, over five minutes.",
            registry=registry,
        )  # fmt: skip
        p95.set_function(self._p95)
        self._depth = Gauge(
            "noetl_pool_depth_highwatermark", "Most database connections in use at once.", ["pool"], registry=registry
        )
        self._http = Histogram(
            "noetl_http_request_duration_seconds", "Seconds requests took, by route.", ["method", "route", "status"],
            buckets=_HTTP_BUCKETS, registry=registry,
        )  # fmt: skip
        for status in get_args(EndStatus):
            self._executions_ended.labels(status)
        for tier in TIERS:
            for direction in get_args(Direction):
                self._payload_bytes.labels(tier, direction)
        for kind in get_args(StageKind):
            self._backlog.labels(kind)
        for pool in POOLS:
            self._depth.labels(pool)
        FabricMetrics(registry)
        self._alerts = AlertMetrics(registry)
        self.relay = RelayMetrics(registry)
        """What the relay of this process counts."""
        self._projections = ProjectionMetrics(registry)
        self._projection_stores = StoreMetrics(registry)
        self.write_path = WritePathMetrics(registry)
        """What the write path of this process counts."""
        self.schedules = ScheduleMetrics(registry)
        """What schedulers of this process count."""
        self._republished = _Republished()
        registry.register(self._republished)

    def observe(self, transition: Transition) -> None:
        """Count what a recorded change of work says."""
        events = 0
        for append in transition.appends:
            for draft in append.drafts:
                events += 1
                self._observe_event(draft)
        self.events_appended(events)

    def _observe_event(self, draft: Draft) -> None:
        kind = draft.event_type
        if kind.startswith("command."):
            word = kind.removeprefix("command.")
            if word in self._commands:
                self._commands[word].inc()
        elif kind in ("frame.dispatched", "loop.shard.enqueued"):
            if len(self._leased) < _WINDOW_FRAMES:
                self._leased[draft.frame_id] = self._clock()
        elif kind in _FRAME_ENDS:
            leased = self._leased.pop(draft.frame_id, None)
            if leased is not None:
                self.frame_ended(self._clock() - leased)
        elif kind.startswith("delivery."):
            self._alerts.observe(draft)
        elif kind == "execution.requested":
            self.execution_started()
        elif kind in ENDING and draft.stream_id.startswith("execution/"):  # a query has an end, but is no execution
            status: EndStatus = kind.rpartition(".")[2].upper()  # type: ignore[assignment]
            self.execution_ended(status)

    def execution_started(self) -> None:
        """Count an execution that began."""
        self._executions_started.inc()

    def execution_ended(self, status: EndStatus) -> None:
        """Count an execution that ended."""
        self._executions_ended.labels(status).inc()

    def commands(self, word: Literal["issued", "claimed", "completed", "failed"], count: int = 1) -> None:
        """Count commands."""
        self._commands[word].inc(count)

    def events_appended(self, count: int) -> None:
        """Count the events of one append."""
        self._events.inc(count)
        self._appends.inc()

    def payload_bytes(self, tier: str, direction: Direction, count: int) -> None:
        """Count bytes read from or written to a tier."""
        self._payload_bytes.labels(tier, direction).inc(count)

    def frame_ended(self, seconds: float) -> None:
        """Note how long a frame was leased until it ended."""
        self._frames.append((self._clock(), seconds))

    def watch_republished(self, count: Callable[[], int]) -> None:
        """Show how many leases the reaper took back, as it counts them."""
        self._republished.count = count

    def watch_pool(self, pool: str, depth: Callable[[], int]) -> None:
        """Look at how many connections of a pool are in use, with every request and whenever metrics are asked for."""
        self._pools[pool] = depth
        self.note_pool_depth(pool, 0)

    def note_pool_depth(self, pool: str, depth: int) -> None:
        """Note how many connections of a pool are in use; the most is kept."""
        self._highest[pool] = max(depth, self._highest.get(pool, 0))
        self._depth.labels(pool).set(self._highest[pool])

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request under the template of its route."""
        self._http.labels(method, route, str(status)).observe(seconds)
        self._look_at_pools()

    async def exposition(self) -> tuple[bytes, str]:
        """Return all metrics as text, with its media type."""
        self._look_at_pools()
        await self._refresh()
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _look_at_pools(self) -> None:
        for pool, depth in self._pools.items():
            self.note_pool_depth(pool, depth())

    async def _refresh(self) -> None:
        if self._database is None:
            return
        async with self._reading:
            if self._clock() - self._read_at < BACKLOG_SECONDS:
                return
            try:
                async with self._database.transaction(None, "reaper") as connection:
                    rows = await connection.fetch(_BACKLOG)
                    pending = await connection.fetchval(_COMMANDS)
                    alerts = await connection.fetch(OPEN)
                    standing = await connection.fetch(STANDING)
                    waiting = await read_waiting(connection)
                    if self._clock() - self._states_at >= STATES_SECONDS:
                        self._show_states(await serving_lives(connection))
                lags = await projection_lags(self._database)
                if self._stores is not None:
                    await self._projection_stores.read(self._database, self._stores)
            except NoetlError:
                # The other metrics are worth having even then, and this counter says that these are old.
                self._read_failed.inc()
                return
            self._read_at = self._clock()
        found = {row["kind"]: row["waiting"] for row in rows}
        for kind in get_args(StageKind):
            self._backlog.labels(kind).set(found.get(kind, 0))
        self._command_backlog.set(pending)
        self._alerts.show_open(alerts)
        self.schedules.show_standing(standing)
        self.write_path.show_waiting(waiting)
        self._projections.show(lags)

    def _show_states(self, lives: Iterable[JobLife]) -> None:
        self._states_at = self._clock()
        found = Bag((one.source or "reactive", one.state) for one in lives if one.state is not None)
        self._jobs.clear()
        for labels, count in found.items():
            self._jobs.labels(*labels).set(count)

    def _p95(self) -> float:
        since = self._clock() - WINDOW_SECONDS
        seconds = sorted(taken for at, taken in self._frames if at >= since)
        return seconds[math.ceil(len(seconds) * 0.95) - 1] if seconds else 0.0


class _Republished(Collector):
    """Shows a count that somebody else keeps."""

    def __init__(self) -> None:
        self.count: Callable[[], int] = lambda: 0

    def collect(self) -> Iterable[Metric]:
        """Give the count as it is now."""
        yield CounterMetricFamily(
            "frame_reaper_republish", "Leases that ran out and were taken back.", value=self.count()
        )
