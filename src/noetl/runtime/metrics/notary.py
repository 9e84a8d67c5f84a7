"""The metrics of notaries: whether a shard left what was signed of it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge


class NotaryMetrics:
    """The series of the notary of this process, there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Gauge(
            "noetl_notary_refused_shards", "Shards of which the notary of this process signs no head, as they left one.",
            registry=registry,
        )  # fmt: skip

    def refused(self, shards: int) -> None:
        """Show of how many shards the last round could sign no head."""
        self._refused.set(shards)
