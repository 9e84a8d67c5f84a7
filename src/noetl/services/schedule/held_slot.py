"""A slot that this process holds the lease of."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from noetl.kernel.leases.heartbeats import stop_at
from noetl.model.event import time_text
from noetl.model.lease import Proof
from noetl.model.stream import Scope
from noetl.services.schedule.spec import Kind, Spec


@dataclass(eq=False)
class Held:
    """What a runner knows of the slot it runs, and how the lease stands."""

    scope: Scope
    schedule_id: str
    name: str
    kind: Kind
    target: dict[str, Any]
    spec: Spec
    plan_time: datetime
    attempt: int
    max_attempts: int
    token: str
    execution_id: int
    """The execution its events belong to; not the one it starts."""
    renewed_at: float
    """When the lease began or was last renewed, by this process's own clock that nobody sets."""
    lost: bool = False
    ending: bool = False
    """Whether its end is being recorded: then it is renewed no more, and only that can tell whether it was lost."""
    running: asyncio.Task[Any] | None = field(default=None, repr=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def key(self) -> str:
        """The key of whatever this slot starts: however often it is run, that is started once."""
        return f"schedule/{self.schedule_id}/{time_text(self.plan_time)}"

    @property
    def proof(self) -> Proof:
        """What this process shows to renew the lease."""
        return Proof((self.schedule_id, self.plan_time), self.attempt, self.token)

    @property
    def lapses_at(self) -> float:
        """When the lease ends by this process's own clock, unless it is renewed."""
        return self.renewed_at + self.spec.stale_timeout_seconds

    @property
    def stops_at(self) -> float:
        """When what runs is stopped by this process's own clock, unless the lease is renewed."""
        return stop_at(self.renewed_at, self.spec.stale_timeout_seconds)

    def lose(self) -> None:
        """Take the news that the lease is somebody else's: what runs is cancelled."""
        if self.ending:
            return
        self.lost = True
        if self.running is not None:
            self.running.cancel()
