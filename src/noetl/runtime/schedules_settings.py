"""The settings of schedules: how much a scheduler does at a time, and how long past runs are kept."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Count, Section


class Schedules(Section):
    """How schedules are run."""

    poll_seconds: float = Field(
        default=2.0,
        gt=0,
        allow_inf_nan=False,
        description="How often a scheduler looks when nothing wakes it; what others changed is seen by then.",
    )
    at_once: Count = Field(default=16, description="Slots of playbooks, and as many of sources, that start at a time.")
    platform_at_once: Count = Field(default=4, description="Jobs of the platform itself that run at a time.")
    keep_succeeded_days: Count = Field(default=30, description="Days that slots are kept which ended well.")
    keep_failed_days: Count = Field(default=90, description="Days that slots are kept which failed.")
