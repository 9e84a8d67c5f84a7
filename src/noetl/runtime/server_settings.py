"""Settings of the long-running roles: where a server listens and whom it admits, and what a worker works for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.runtime.setting_types import Count, HttpUrl, Name, SecretText, Section, Text


class Server(Section):
    """Where the server listens and whom it admits."""

    host: Text = Field(default="127.0.0.1", description="Address to listen on; any but the loopback needs tokens.")
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=8082, description="Port to listen on; 0 takes a free one."
    )
    require_tokens: bool | None = Field(
        default=None,
        description="Whether requests must carry a token; null asks on the loopback once the organization has had one.",
    )


class Worker(Section):
    """What a worker works for, and how much of it at a time."""

    slots: Count = Field(default=16, description="Commands a worker works on at a time.")
    runtimes: tuple[Literal["dispatcher", "spark", "ecs_platform", "ecs_udf"], ...] = Field(
        default=("dispatcher", "spark", "ecs_platform", "ecs_udf"),
        description="Runtimes whose tasks of dataset jobs the worker takes; none takes no tasks.",
    )
    task_slots: Count = Field(default=4, description="Dataset jobs a worker works on at a time.")
    pool: Name = Field(default="default", description="Name of the pool the worker is shown in.")
    server: HttpUrl | None = Field(
        default=None, description="Server to work for; null works on the configured database itself."
    )
    token: SecretText | None = Field(default=None, description="Token of the role worker, for the server.")
    register_seconds: float = Field(
        default=15.0, gt=0, allow_inf_nan=False, description="Seconds after which a worker says again that it is there."
    )
