"""The settings of what other systems are told about tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.runtime.setting_types import Location, SecretText, SecretUrl, Section, UrlScheme


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
