"""The metrics of a worker that is a process of its own: the worker goes in, what it is at comes out as series."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from noetl import __version__
from noetl.engine.worker.worker import Worker
from noetl.runtime.metrics.payload_tiers import FabricMetrics


class WorkerMetrics(Collector):
    """The series of one worker, at zero until it is there."""

    def __init__(self, registry: CollectorRegistry, slots: int) -> None:
        self._slots = slots
        self._worker: Worker | None = None
        registry.register(self)

    def watch(self, worker: Worker) -> None:
        """Look at this worker whenever metrics are asked for."""
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        """Give the counts as they are now."""
        worker = self._worker
        yield GaugeMetricFamily("worker_slots", "Commands that this worker may work on at a time.", value=self._slots)
        yield GaugeMetricFamily(
            "worker_slots_busy", "Commands that this worker works on.", value=worker.busy if worker else 0
        )
        yield CounterMetricFamily(
            "worker_commands", "Commands that this worker took.", value=worker.commands if worker else 0
        )
        yield CounterMetricFamily(
            "worker_claims", "Claims of cursor loops that gave rows.", value=worker.claims if worker else 0
        )


class FarWorkerMetrics:
    """All that a worker for a server elsewhere can tell: its own work and its payload tiers; it has no database."""

    def __init__(self, slots: int) -> None:
        self.registry = CollectorRegistry()
        build = Gauge("noetl_build_info", "Which program this is.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self.working = WorkerMetrics(self.registry, slots)
        FabricMetrics(self.registry)

    async def exposition(self) -> tuple[bytes, str]:
        """Return all metrics as text, with its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
