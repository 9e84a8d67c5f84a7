"""The promise of a wake-up: somebody who can run the task looks soon. It carries no work, only the news that there is some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl.model.stream import Scope


class Wakeup(msgspec.Struct, frozen=True):
    """A task that waits, and what runs it."""

    task_id: str
    runtime: str


class Wakeups(Protocol):
    """Tells workers. Losing one, sending it twice or in another order does no harm: workers look by themselves, too."""

    async def wake(self, scope: Scope, tasks: Sequence[Wakeup]) -> None:
        """Tell whoever runs these tasks; returns once they are told, or raises."""
        ...

    async def close(self) -> None:
        """Send what is gathered and let go of connections."""
        ...
