"""Executions that go on for nobody: one goes in, and why it does comes out, if its parent or one further up took it along.

A parent that failed takes along what it waited for, one that was cancelled all that it started, unless it was told not to.
Whoever ended it mostly stops them at once; here they are known by when that did not happen, or has not happened yet.
"""

from __future__ import annotations

from noetl.dispatch.facts.port import Facts
from noetl.dispatch.open_executions.port import OpenExecutions
from noetl.model.stream import Scope

KEPT = 10_000
"""Children that outlive their parents and are looked at once; beyond that, once more."""


class Orphans:
    """Tells them from those that may go on, and remembers the latter."""

    def __init__(self, running: OpenExecutions, facts: Facts) -> None:
        self._open = running
        self._facts = facts
        self.let_be: set[int] = set()
        """Children that go on though their parent has ended."""

    async def why(self, scope: Scope, child_id: int, parent_id: int) -> str | None:
        """Say why a child goes on for nobody, its parent having ended; None if it may go on."""
        if child_id in self.let_be:
            return None
        ended = await self._facts.taking_along(scope, parent_id, child_id)
        if ended is None:
            if len(self.let_be) >= KEPT:
                self.let_be.clear()
            self.let_be.add(child_id)
            return None
        return f"its parent {parent_id} {'was cancelled' if ended == 'execution.cancelled' else 'ended as FAILED'}"

    async def why_below(self, scope: Scope, execution_id: int) -> str | None:
        """Say why an open execution goes on for nobody, whoever above it has ended; None if it may go on."""
        top = await self._open.top_of(scope, execution_id)
        if top is None or top.parent_execution_id is None:
            return None
        orphan = top.execution_id
        said = await self.why(scope, orphan, top.parent_execution_id)
        return said if said is None or orphan == execution_id else f"of {orphan} above it {said}"
