"""The settings of the event lake."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Count, Section, Text


class EventLakeSettings(Section):
    """How the event lake follows the ledger."""

    trigger_seconds: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Seconds between the batches of `noetl lake sync --follow`."
    )
    batch_events: Count = Field(
        default=1_000_000, description="Positions of the ledger that one batch covers, at most."
    )
    partition_events: Count = Field(default=50_000, description="Positions that one Spark task reads, at most.")
    checkpoint: Text | None = Field(
        default=None,
        description="Directory or address for Spark's checkpoints that driver and executors share; null is the lake itself.",
    )
    compact_files: Count = Field(
        default=64, description="Files of a day after which `--follow` puts small ones together."
    )
    target_bytes: Count = Field(default=134_217_728, description="How large a file becomes by that.")
    facts: bool = Field(default=True, description="Whether the facts are kept up to date with the lake.")
    facts_seconds: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="Seconds between refreshes of the facts while following."
    )
    verify_positions: Count = Field(
        default=100_000, description="Positions of one range that `noetl lake verify` compares by one checksum."
    )
