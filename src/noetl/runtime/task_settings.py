"""The settings of tasks: how workers hear of them, and where functions of a cloud are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.runtime.setting_types import HttpUrl, Section, Text
from noetl.runtime.spark_settings import Pairs, split


class Tasks(Section):
    """How workers hear that tasks wait."""

    wakeups: Literal["postgres", "sqs"] = Field(
        default="postgres", description="What carries the news: the database itself, or queues of Amazon SQS."
    )
    queues: Pairs = Field(default=(), description="Queue of each runtime, as runtime=URL; runtimes without one poll.")
    receive_seconds: Annotated[int, Field(ge=1, le=20)] = Field(
        default=5,
        description="Seconds one request to a queue waits for wake-ups; a process that ends may wait as long for it.",
    )
    region: Text | None = Field(
        default=None, description="AWS region of queues and functions; null is AWS's own default."
    )
    endpoint: HttpUrl | None = Field(default=None, description="Address of AWS's services; null is AWS itself.")

    @property
    def endpoint_url(self) -> str | None:
        """Where AWS's services are, if not at AWS."""
        return self.endpoint.get_secret_value() if self.endpoint else None

    def queue_urls(self) -> dict[str, str]:
        """Return the queues by runtime."""
        return split(self.queues)
