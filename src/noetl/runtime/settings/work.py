"""The settings of work that comes again: schedules, tasks of pipelines, sources and backfills."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.runtime.settings.spark import Pairs, split
from noetl.runtime.settings.types import Count, HttpUrl, Section, Text


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


class Backfill(Section):
    """How backfills share the workers with what is new."""

    max_in_flight: Count = Field(
        default=32, description="Tasks of one backfill that may be under way, unless its request says otherwise."
    )
    organization_in_flight: Count = Field(
        default=128, description="Tasks of all backfills of one organization that may be under way."
    )
