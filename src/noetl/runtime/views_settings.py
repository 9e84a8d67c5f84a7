"""The settings of streaming views."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Count, Section, Text


class Views(Section):
    """How streaming views are run."""

    enabled: bool = Field(
        default=True, description="Whether servers run deployed views by themselves; `noetl views run` always does."
    )
    checkpoint: Text | None = Field(
        default=None,
        description="Directory or address of Spark's state, shared by driver and executors; null is `views` in `runtime.home`.",
    )
    together: Count = Field(default=4, description="Views that one process runs at a time.")
    partitions: Count = Field(default=4, description="Parts in which the state of a new view is kept.")
    every_seconds: float = Field(
        default=2.0, gt=0, allow_inf_nan=False, description="How often a process looks for views that nobody runs."
    )
    lease_seconds: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="How long a process holds a view without a heartbeat."
    )
