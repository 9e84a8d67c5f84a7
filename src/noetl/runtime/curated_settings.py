"""The settings of curated views over all tenants."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Section, Text


class Curated(Section):
    """What operators may read of all tenants."""

    views: tuple[Text, ...] = Field(
        default=(), description="Curated views of your own, each as `module:name` of a CuratedView."
    )
    timeout_seconds: float = Field(
        default=120.0, gt=0, allow_inf_nan=False, description="Seconds that computing a curated view may take."
    )
