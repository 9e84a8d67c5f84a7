"""The settings of what others are told: alerts, and OpenLineage events about tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.runtime.settings.types import Location, SecretText, SecretUrl, Section, UrlScheme


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


class OpenLineage(Section):
    """Where OpenLineage events about tasks go."""

    transport: Literal["none", "file", "http"] = Field(
        default="none", description="How they are sent: not at all, appended to a file, or posted to a server."
    )
    path: Location | None = Field(
        default=None,
        description="File of JSON lines for the transport `file`; null is `openlineage.jsonl` under `runtime.home`.",
    )
    url: Annotated[SecretUrl, UrlScheme("http", "https")] | None = Field(
        default=None, description="Address that takes events by POST for the transport `http`, up to its path."
    )
    token: SecretText | None = Field(default=None, description="Bearer token for the transport `http`.")
    every_seconds: float = Field(
        default=2.0, gt=0, allow_inf_nan=False, description="How often a server looks for what is to be sent."
    )
