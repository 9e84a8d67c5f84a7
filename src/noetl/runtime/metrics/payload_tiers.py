"""The figures of the payload tiers of this process, as metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from noetl.kernel.payloads.figures import TIERS
from noetl.runtime.payloads import tiers

CONSUMERS: Final = ("process", "projector", "reducer", "replay", "server", "spark", "worker")
"""Who reads payloads; each has its series from the start."""
_REASONS: Final = {
    "memory": ("digest",),
    "ipc": (
        "broker", "busy", "digest", "error", "forged", "full", "gone", "header", "hint", "length", "name", "node",
        "owner", "reused", "schema", "stale",
    ),
    "disk": ("digest", "error", "full", "read_only"),
}  # fmt: skip


class FabricMetrics(Collector):
    """Reads the counts whenever metrics are asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Give the counts as they are now."""
        told = tiers.FIGURES.told()
        hits = CounterMetricFamily("tier_hits", "Payload reads, by the tier that served them.", labels=["tier"])
        for tier in TIERS:
            hits.add_metric([tier], sum(served.get(tier, 0) for served in told.reads.values()))
        yield hits
        ratio = GaugeMetricFamily(
            "tier_hit_ratio", "Part of a consumer's payload reads that a tier served.", labels=["consumer", "tier"]
        )
        for consumer in sorted({*CONSUMERS, *told.reads}):
            for tier in TIERS:
                ratio.add_metric([consumer, tier], told.ratio(consumer, [tier]))
        yield ratio
        moved = CounterMetricFamily(
            "noetl_payload_bytes", "Payload bytes that a tier served and took.", labels=["tier", "direction"]
        )
        for tier in TIERS:
            moved.add_metric([tier, "read"], told.read_bytes.get(tier, 0))
            moved.add_metric([tier, "written"], told.written.get(tier, 0))
        yield moved
        passed = CounterMetricFamily(
            "tier_passed", "Times a tier was passed over, by reason.", labels=["tier", "reason"]
        )
        for name, reasons in _REASONS.items():
            for reason in reasons:
                passed.add_metric([name, reason], told.passed.get(f"{name}:{reason}", 0))
        yield passed
        yield GaugeMetricFamily("tier15_bytes_in_use", "Bytes of shared memory in use on this node.", value=in_use())
        yield CounterMetricFamily(
            "tier15_budget_exhaustion", "Tables that found the node's budget used up.", value=told.exhausted
        )


def in_use() -> int:
    """Return the bytes of shared memory in use on the nodes of this process."""
    return sum(one.ipc.in_use() for one in tiers.opened_fabrics() if one.ipc is not None)
