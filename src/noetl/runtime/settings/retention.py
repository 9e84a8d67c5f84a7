"""The settings of retention: how long organizations keep what they did not decide about themselves."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from noetl.runtime.settings.types import Amount, Section


class Retention(Section):
    """How long things are kept in organizations that did not decide otherwise; null is for ever."""

    as_of_days: Amount | None = Field(
        default=None, description="Days back of which every point stays answerable, for every dataset."
    )
    generation_days: Amount | None = Field(
        default=None, description="Days a generation stays that nobody uses any more."
    )
    keep_generations: Amount = Field(
        default=2, description="Unused generations of each dataset that stay however old they are, the newest."
    )
    grace_hours: Amount = Field(
        default=24, description="Hours that come on top of every time for data in the lake, for those who read them."
    )
    staging_days: Amount | None = Field(default=7, description="Days of files of attempts that came to nothing.")
    task_days: Amount | None = Field(default=30, description="Days of ended tasks of generations that were purged.")
    outbox_days: Amount | None = Field(default=7, description="Days of outbox rows that are done.")
    slot_days: Amount | None = Field(default=90, description="Days of past runs of schedules.")
    query_days: Amount | None = Field(default=90, description="Days of the record of queries.")
    bundle_days: Amount | None = Field(default=30, description="Days of unpacked code of DAG versions not in use.")
    automatic: bool = Field(default=False, description="Whether a server runs retention by itself every day.")

    def policy(self) -> dict[str, Any]:
        """Return what holds where an organization decided nothing."""
        return self.model_dump()
