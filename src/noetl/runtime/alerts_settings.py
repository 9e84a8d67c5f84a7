"""The settings of alerts."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Section


class Alerts(Section):
    """How alerts are sent."""

    every_seconds: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="How often a sender looks for messages that are due."
    )
    lease_seconds: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="How long a sender holds a message without a heartbeat."
    )
    allow_private: bool | None = Field(
        default=None,
        description="Whether channels may ask to reach this machine and private networks; null lets them until the "
        "organization has had a token.",
    )
