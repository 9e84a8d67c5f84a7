"""Metrics of one process: plain calls go in, Prometheus' text comes out. Nothing is labelled by execution or tenant.

Every series exists from the start with zero, so that a missing one means a missing process; only routes come with their
first request, for there are more of them than of all else. What waits for workers is read from the database when it is
asked for, at most once a second.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter as Bag
from collections.abc import Callable, Iterable
from typing import Protocol, get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from noetl.api.connections.refusals import Reason
from noetl.errors import NoetlError
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.projections.stores.by_type import StoredByType
from noetl.pipelines.catalog.dags.status import JobLife, serving_lives
from noetl.runtime.metrics.alerts import OPEN, AlertMetrics
from noetl.runtime.metrics.notary import NotaryMetrics
from noetl.runtime.metrics.payload_tiers import FabricMetrics
from noetl.runtime.metrics.projections import ProjectedCounts, ProjectionMetrics, StoreMetrics, projection_lags
from noetl.runtime.metrics.relay import RelayMetrics
from noetl.runtime.metrics.schedules import STANDING, ScheduleMetrics
from noetl.runtime.metrics.work import StageKind, WorkMetrics
from noetl.runtime.metrics.write_path import ReadWaiting, WritePathMetrics

POOLS = ("readers", "workers")
BACKLOG_SECONDS = 1.0
STATES_SECONDS = 15.0
_HTTP_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Few, for each is a series per route and status."""

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
        self._pools: dict[str, Callable[[], int]] = {}
        self._waiting: ReadWaiting | None = None
        self._highest: dict[str, int] = {}
        self._add_series(version)

    def _add_series(self, version: str) -> None:
        registry = self.registry
        Gauge("noetl_build_info", "Which program this is.", ["version"], registry=registry).labels(version).set(1)
        self._work = WorkMetrics(registry, self._clock)
        self._events = Counter("noetl_events_appended", "Events written to the ledger.", registry=registry)
        self._appends = Counter("noetl_event_appends", "Transactions that wrote events.", registry=registry)
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
            "noetl_backlog_read_failures",
            "Times the backlog could not be read from database or stream.",
            registry=registry,
        )
        self._depth = Gauge(
            "noetl_pool_depth_highwatermark", "Most database connections in use at once.", ["pool"], registry=registry
        )
        self._http = Histogram(
            "noetl_http_request_duration_seconds", "Seconds requests took, by route.", ["method", "route", "status"],
            buckets=_HTTP_BUCKETS, registry=registry,
        )  # fmt: skip
        self._ended = Counter(
            "noetl_http_connections_ended", "Connections ended because they took too much or too long.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self._refused = Counter("noetl_refused_tokens", "Tokens shown that are no good.", registry=registry)
        for reason in get_args(Reason):
            self._ended.labels(reason)
        for kind in get_args(StageKind):
            self._backlog.labels(kind)
        for pool in POOLS:
            self._depth.labels(pool)
        FabricMetrics(registry)
        self._alerts = AlertMetrics(registry)
        self.notary = NotaryMetrics(registry)
        """What the notary of this process says of shards."""
        self.relay = RelayMetrics(registry)
        """What the relay of this process counts."""
        self.projected = ProjectedCounts(registry)
        """What a projector of this process counts."""
        self._projections = ProjectionMetrics(registry)
        self._projection_stores = StoreMetrics(registry)
        self.write_path = WritePathMetrics(registry)
        """What the write path of this process counts."""
        self.schedules = ScheduleMetrics(registry)
        """What schedulers of this process count."""
        self._republished = _Republished()
        registry.register(self._republished)
        self._unsound = _Unsound()
        registry.register(self._unsound)

    def observe(self, transition: Transition) -> None:
        """Count what a recorded change of work says."""
        events = 0
        for append in transition.appends:
            for draft in append.drafts:
                events += 1
                self._work.observe(draft)
                if draft.event_type.startswith("delivery."):
                    self._alerts.observe(draft)
        self.events_appended(events)

    def events_appended(self, count: int) -> None:
        """Count the events of one append."""
        self._events.inc(count)
        self._appends.inc()

    def watch_reaper(self, reaper: Reaping) -> None:
        """Show how much the reaper took back, as it counts it."""
        self._republished.reaper = reaper

    def watch_checks(self, checks: Checks) -> None:
        """Show how many events were found whose claims do not hold."""
        self._unsound.checks.append(checks)

    def watch_waiting(self, waiting: ReadWaiting) -> None:
        """Ask so what waits for materializers, whenever metrics are asked for."""
        self._waiting = waiting

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

    def connection_ended(self, reason: Reason) -> None:
        """Count a connection that took too much or too long."""
        self._ended.labels(reason).inc()

    def token_refused(self) -> None:
        """Count a token that is no good."""
        self._refused.inc()

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
        self._projections.show(lags)
        await self._show_waiting()

    async def _show_waiting(self) -> None:
        if self._waiting is None:
            return
        try:
            waiting = await self._waiting()
        except NoetlError:
            self._read_failed.inc()
            return
        self.write_path.show_waiting(waiting)
        if waiting.stale:
            self._read_failed.inc()

    def _show_states(self, lives: Iterable[JobLife]) -> None:
        self._states_at = self._clock()
        found = Bag((one.source or "reactive", one.state) for one in lives if one.state is not None)
        self._jobs.clear()
        for labels, count in found.items():
            self._jobs.labels(*labels).set(count)


class Reaping(Protocol):
    """What a reaper counts."""

    frames_republished: int
    commands_republished: int


class _Nothing:
    frames_republished = 0
    commands_republished = 0


class _Republished(Collector):
    """Shows what the reaper counts."""

    def __init__(self) -> None:
        self.reaper: Reaping = _Nothing()

    def collect(self) -> Iterable[Metric]:
        """Give the counts as they are now."""
        for work in ("frame", "command"):
            yield CounterMetricFamily(
                f"{work}_reaper_republish", f"{work.title()}s whose lease ran out and that were taken back.",
                value=getattr(self.reaper, f"{work}s_republished"),
            )  # fmt: skip


class _Unsound(Collector):
    """Shows what the checks of appends have found."""

    def __init__(self) -> None:
        self.checks: list[Checks] = []

    def collect(self) -> Iterable[Metric]:
        """Give the count as it is now."""
        yield CounterMetricFamily(
            "noetl_unsound_events", "Events found by sampling whose locators or references do not hold; each is logged.",
            value=sum(one.unsound for one in self.checks),
        )  # fmt: skip
