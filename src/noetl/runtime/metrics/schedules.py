"""The metrics of schedules: what schedulers of this process did, and what waits in the database. Labelled by kind alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from noetl.kernel.leases.kinds import SLOT
from noetl.services.schedule.meter import BeatResult, ClaimResult, RunResult
from noetl.services.schedule.spec import KINDS, Kind

STANDING: Final = f"""
SELECT k.kind,
    (SELECT count(*) FROM noetl.cron_slot AS s JOIN noetl.schedule AS c USING (tenant_id, organization_id, schedule_id)
     WHERE c.kind = k.kind AND {SLOT.expired("s", now="now()")}) AS stale,
    (SELECT count(*) FROM noetl.cron_slot AS s JOIN noetl.schedule AS c USING (tenant_id, organization_id, schedule_id)
     WHERE c.kind = k.kind AND s.status = 'FAILED' AND s.next_retry_at IS NULL) AS failed,
    greatest(0, extract(epoch FROM now() - least(
        (SELECT min(c.next_due) FROM noetl.schedule AS c WHERE c.kind = k.kind AND c.next_due <= now()),
        (SELECT min(s.plan_time) FROM noetl.cron_slot AS s
            JOIN noetl.schedule AS c USING (tenant_id, organization_id, schedule_id)
         WHERE c.kind = k.kind AND (s.status = 'RUNNING' OR s.next_retry_at IS NOT NULL)))))::float8 AS lag
FROM unnest(ARRAY['platform', 'source', 'playbook']) AS k (kind)
"""  # noqa: S608
"""What is asked of the database."""
_BUCKETS: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)


class ScheduleMetrics:
    """The series of schedules, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._claims = Counter(
            "scheduler_claim", "Planned moments that were claimed, tried again, or taken by somebody quicker.",
            ["kind", "result"], registry=registry,
        )  # fmt: skip
        self._runs = Counter(
            "scheduler_execution", "Runs of slots, by what they came to.", ["kind", "result"], registry=registry
        )
        self._seconds = Histogram(
            "scheduler_execution_duration_seconds", "Seconds that runs of slots took.", ["kind"], buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self._beats = Counter("scheduler_heartbeat", "Heartbeats of slots.", ["kind", "result"], registry=registry)
        self._lag = Gauge(
            "scheduler_plan_lag_seconds", "Seconds since the oldest moment that is due and has not been run to an end.",
            ["kind"], registry=registry,
        )  # fmt: skip
        self._stale = Gauge(
            "scheduler_running_stale_total", "Slots whose runner was lost and that nobody has taken back.", ["kind"],
            registry=registry,
        )  # fmt: skip
        self._failed = Gauge(
            "scheduler_failed_unretried_total", "Slots that failed and are not tried again.", ["kind"],
            registry=registry,
        )  # fmt: skip
        for kind in KINDS:
            for counter, results in ((self._claims, ClaimResult), (self._runs, RunResult), (self._beats, BeatResult)):
                for result in get_args(results):
                    counter.labels(kind, result)
            self._seconds.labels(kind)
        self.show_standing(())

    def slots_claimed(self, kind: Kind, result: ClaimResult, count: int = 1) -> None:
        """Count moments that were claimed, tried again, or taken by somebody quicker."""
        self._claims.labels(kind, result).inc(count)

    def slot_ended(self, kind: Kind, result: RunResult, seconds: float) -> None:
        """Count a run and how long it took."""
        self._runs.labels(kind, result).inc()
        self._seconds.labels(kind).observe(seconds)

    def slots_beaten(self, kind: Kind, result: BeatResult, count: int = 1) -> None:
        """Count heartbeats."""
        self._beats.labels(kind, result).inc(count)

    def show_standing(self, rows: Iterable[Any]) -> None:
        """Show what stands in the database, as it answered."""
        found = {row["kind"]: row for row in rows}
        for kind in KINDS:
            row = found.get(kind, {"lag": 0.0, "stale": 0, "failed": 0})
            self._lag.labels(kind).set(row["lag"] or 0.0)
            self._stale.labels(kind).set(row["stale"])
            self._failed.labels(kind).set(row["failed"])
