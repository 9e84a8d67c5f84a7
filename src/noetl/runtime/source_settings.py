"""Settings of sources: how often those that are kept running are looked at, and what webhooks take."""

from __future__ import annotations

from pydantic import Field

from noetl.runtime.setting_types import Count, Section


class Sources(Section):
    """What keeps sources running, and what may be sent to them."""

    look_seconds: float = Field(
        default=0.5, gt=0, allow_inf_nan=False, description="How often sources that are kept running are looked at."
    )
    drain_seconds: float = Field(
        default=30.0,
        ge=0,
        allow_inf_nan=False,
        description="How long a turn may take to end by itself once its worker is to stop.",
    )
    hook_max_bytes: Count = Field(default=1_048_576, description="Bytes one request to a webhook may have.")
    hook_window_seconds: float = Field(
        default=300.0, gt=0, allow_inf_nan=False, description="How far from now a request may have been signed."
    )
    hooks_at_once: Count = Field(default=32, description="Requests to webhooks a server works on at a time.")
    hooks_per_minute: Count = Field(default=600, description="Requests a server takes for one webhook in a minute.")
