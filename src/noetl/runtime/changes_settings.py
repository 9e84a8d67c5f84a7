"""The settings of changing data: how much of a backfill may be under way."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Count, Section


class Backfill(Section):
    """How backfills share the workers with what is new."""

    max_in_flight: Count = Field(
        default=32, description="Tasks of one backfill that may be under way, unless its request says otherwise."
    )
    organization_in_flight: Count = Field(
        default=128, description="Tasks of all backfills of one organization that may be under way."
    )
