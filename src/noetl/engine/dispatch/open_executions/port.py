"""What dispatch asks about open executions. The docstrings are the specification of every adapter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from noetl.model.stream import Scope


class OpenExecution(msgspec.Struct, frozen=True):
    """An execution that has not ended."""

    scope: Scope
    execution_id: int
    parent_execution_id: int | None = None


class Descendant(msgspec.Struct, frozen=True):
    """An open execution below another."""

    execution_id: int
    parent_execution_id: int
    level: int
    """How many steps below."""


class OpenHead(msgspec.Struct, frozen=True, kw_only=True):
    """An open execution as far as it is known without its events."""

    execution_id: int
    version: int
    """Of its stream."""
    catalog_id: str
    path: str
    parent_execution_id: int | None
    parent_command_id: str | None


class OpenExecutions(Protocol):
    """Open executions of all organizations. What is asked without a scope is asked of all of them."""

    async def head(self, scope: Scope, execution_id: int) -> OpenHead | None:
        """Return an open execution with the version at which it is open; None if it is not open."""
        ...

    async def ended(self, scope: Scope, executions: Sequence[int]) -> list[int]:
        """Return those executions that are not open."""
        ...

    async def waited_for(self, scope: Scope, execution_id: int) -> list[int]:
        """Return the open executions that an execution has started and waits for."""
        ...

    async def below(self, scope: Scope, executions: Sequence[int]) -> list[Descendant]:
        """Return the open executions below these, as far as each is reached by open ones, the highest first."""
        ...

    async def outlived(self, scope: Scope, execution_id: int) -> list[Descendant]:
        """Return the open executions whose parent has ended and which an execution started, itself or through others."""
        ...

    async def top_of(self, scope: Scope, execution_id: int) -> OpenExecution | None:
        """Return the highest execution above an open one that is reached by open ones, if its own parent has ended."""
        ...

    async def orphans(self, idle_seconds: float, but: Collection[int]) -> list[OpenExecution]:
        """Return executions, requested that long ago, whose parent has ended, but for some; the oldest first."""
        ...

    async def overdue(self) -> list[OpenExecution]:
        """Return executions whose time is over, by the clock of the store, some hundred at a time; the most overdue first."""
        ...

    async def deciding(self, scope: Scope, execution_id: int, version: int) -> int:
        """Note that a lengthy decision about an execution at this version begins; return how many have begun, with it.

        It is noted for good before this returns: whoever decides after a process was killed counts on.
        """
        ...

    async def decided(self, scope: Scope, execution_id: int) -> None:
        """Forget the lengthy decisions about an execution: one of them came to its end."""
        ...

    async def idle(self, idle_seconds: float) -> list[OpenExecution]:
        """Return executions, requested that long ago, that have no command, some hundred at a time."""
        ...
