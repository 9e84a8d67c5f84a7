"""What a worker of dataset jobs asks of those who hand out tasks; the same in one process and over the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from noetl.errors import Conflict
from noetl.model.dataset import Manifest
from noetl.model.task import InputPart, TaskGrant, TaskLease, TaskReport, TaskStatus

Place = tuple[int, str]
"""An output and a partition of it."""


class BaseMoved(Conflict):
    """Partitions moved on since the rows were made unique against them; make them unique again and complete again."""

    code = "base_moved"

    def __init__(self, parts: dict[Place, InputPart], landed: dict[Place, Manifest]) -> None:
        named = ", ".join(f"{key} of output {output}" for output, key in sorted(parts))
        super().__init__(f"another commit reached {named} first", hint="make the rows unique against what landed")
        self.parts = parts
        """What stands now, as a grant would say it."""
        self.landed = landed
        """The same with its manifests."""


class Tasks(Protocol):
    """Hands out tasks under leases and takes back what came of them.

    Everything that changes something is fenced by the lease: `LeaseLost` means that somebody else has the task now,
    or that it was cancelled, and that nothing was written.
    """

    async def claim(
        self, worker: str, runtimes: Sequence[str], want: int, wait_seconds: float, *, like: str | None = None
    ) -> list[TaskGrant]:
        """Lease up to `want` tasks of one job, waiting up to `wait_seconds` for the first.

        `like` is the id of a job: only its tasks are given then.
        """
        ...

    async def fetch(self, lease: TaskLease) -> TaskGrant:
        """Return once more what was granted with a lease that is still held."""
        ...

    async def heartbeat(self, leases: Sequence[TaskLease]) -> list[TaskLease]:
        """Make leases last longer and return those that are lost; a task that is to be cancelled ends hereby."""
        ...

    async def started(self, grant: TaskGrant, application_id: str, job_tag: str) -> None:
        """Record where the work runs before it begins, so that whoever comes after a crash can stop it."""
        ...

    async def complete(
        self, grant: TaskGrant, report: TaskReport, manifests: Mapping[str, Manifest] | None = None
    ) -> TaskStatus:
        """Commit what an attempt wrote, all of it at once or nothing, and return what the task is now.

        `manifests` are those of the grant by the SHA-256 of their payload, as far as they are at hand. Raises
        `BaseMoved` when an append has to be made unique against another commit first. A blocking check that failed or
        a schema that may not change so fails the task for good.
        """
        ...

    async def fail(self, grant: TaskGrant, report: TaskReport) -> TaskStatus:
        """Record that an attempt failed, or was cancelled, and return what the task is now."""
        ...
