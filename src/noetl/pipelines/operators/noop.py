"""The operator that does nothing: for wiring, and to see what tasks cost by themselves."""

from __future__ import annotations

from noetl.pipelines.worker.in_process import Produced
from noetl.spark.drivers.protocol import Work


class NoopOperator:
    """Ends well at once."""

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Do nothing."""
        return Produced()
