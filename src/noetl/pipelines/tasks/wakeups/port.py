"""The promise of a wake-up: somebody who can run the task looks soon. It carries no work, only the news that there is some."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
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

    def listen(self) -> None:
        """Hear what other processes tell, until closed."""
        ...

    def awaited(self, runtimes: Sequence[str]) -> AbstractContextManager[None]:
        """Say, for the time of the block, that somebody of this process waits for tasks of these runtimes."""
        ...

    async def close(self) -> None:
        """Stop listening, send what is gathered and let go of connections."""
        ...
