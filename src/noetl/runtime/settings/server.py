"""Settings of the long-running roles: where a server listens and whom it admits, and what a worker works for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from noetl.engine.confinement.policy import TASK_USER
from noetl.runtime.settings.types import Count, HttpUrl, Name, SecretText, Section, Text

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ServerLimits(Section):
    """What a connection may take of a server before and while its requests are answered."""

    header_bytes: Annotated[int, Field(ge=1_024)] = Field(
        default=65_536, description="Bytes the line and the headers of a request may have."
    )
    header_count: Count = Field(default=100, description="Headers a request may have.")
    header_seconds: Seconds = Field(
        default=10.0,
        description="Seconds until the headers of a request are whole, from the connection or its first byte.",
    )
    body_bytes: Count = Field(default=16_777_216, description="Bytes the body of a request may have.")
    body_seconds: Seconds = Field(
        default=30.0,
        description="Seconds until a body is whole, besides those that bytes_per_second allows for its size.",
    )
    send_seconds: Seconds = Field(
        default=60.0, description="Seconds an answer waits for its reader, besides those that bytes_per_second allows."
    )
    bytes_per_second: Count = Field(
        default=4_096, description="The slowest that a body is taken and an answer is read."
    )
    idle_seconds: Seconds = Field(default=75.0, description="Seconds a connection is kept for the next request.")
    pipelined: Count = Field(
        default=16, description="Requests that may wait on one connection for the answers of those before."
    )
    connections: Count = Field(
        default=10_000, description="Connections in all, and never more than the files the process may open."
    )
    connections_per_address: Count = Field(
        default=1_000, description="Connections of one address, or of one /64 network of IPv6; a proxy is one address."
    )


class Server(Section):
    """Where the server listens and whom it admits."""

    host: Text = Field(default="127.0.0.1", description="Address to listen on; any but the loopback needs tokens.")
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=8082, description="Port to listen on; 0 takes a free one."
    )
    require_tokens: bool | None = Field(
        default=None,
        description="Whether requests must carry a token; null asks on the loopback once the organization has had one."
        " Where none is asked for, the server answers its own account alone.",
    )
    limits: ServerLimits = ServerLimits()


class Worker(Section):
    """What a worker works for, and how much of it at a time."""

    slots: Count = Field(default=16, description="Commands a worker works on at a time.")
    runtimes: tuple[Literal["dispatcher", "spark", "ecs_platform", "ecs_udf"], ...] = Field(
        default=("dispatcher", "spark", "ecs_platform", "ecs_udf"),
        description="Runtimes whose tasks of dataset jobs the worker takes; none takes no tasks.",
    )
    task_slots: Count = Field(default=4, description="Dataset jobs a worker works on at a time.")
    pool: Name = Field(default="default", description="Name of the pool the worker is shown in.")
    isolation: Literal["auto", "user", "namespace", "none"] = Field(
        default="auto",
        description="How processes of tasks are kept from secrets: under another user id (root alone), in namespaces, not at "
        "all, or as well as the machine allows.",
    )
    isolation_user: Annotated[int, Field(ge=1, le=4_000_000_000)] = Field(
        default=TASK_USER, description="User id of tasks where a worker of root isolates them by user."
    )
    task_memory_mb: Annotated[int, Field(ge=64)] | None = Field(
        default=None,
        description="MiB that all processes of a shell, mcp or udf task may take together; null is most of the machine's.",
    )
    server: HttpUrl | None = Field(
        default=None, description="Server to work for; null works on the configured database itself."
    )
    token: SecretText | None = Field(default=None, description="Token of the role worker, for the server.")
    register_seconds: float = Field(
        default=15.0, gt=0, allow_inf_nan=False, description="Seconds after which a worker says again that it is there."
    )
