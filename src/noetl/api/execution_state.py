"""The state of executions for readers: an id goes in, its folded state comes out, or that there is no such execution.

The same fold as the engine's, on the readers' own connections, so that every surface shows one status.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from noetl.api.wire import View, combined
from noetl.engine.dispatch.polling import Signal
from noetl.engine.plan.state import State, evolve
from noetl.errors import NotFound
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.envelope import resolve
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.catalogue import ENDING
from noetl.model.event import Event
from noetl.model.ids import Id64, organization_root_id
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, execution_stream

KEPT = 256
"""Executions whose state stays in memory."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as of a position."""

    state: State
    as_of_position: int = 0
    as_of_event_id: int = 0
    requested_at: datetime | None = None
    ended_at: datetime | None = None
    version: int | None = None
    """That of the playbook."""


class ExecutionStatus(View, frozen=True, kw_only=True):
    """How an execution is, as of a position."""

    execution_id: Id64
    status: str
    ended: bool
    error: str | None
    failed_step: str | None
    swallowed_errors: int
    as_of_position: int
    as_of_event_id: Id64


class ExecutionView(ExecutionStatus, frozen=True, kw_only=True):
    """An execution with what it works on and what came of it."""

    path: str
    version: int | None
    catalog_id: str
    playbook_digest: str
    parent_execution_id: Id64 | None
    requested_at: datetime | None
    ended_at: datetime | None
    workload: dict[str, Any]
    active_steps: list[str]
    open_commands: int
    steps_entered: dict[str, int]
    result_step: str | None
    result: Any
    result_ref: PayloadRef | None


Shown = TypeVar("Shown", bound=ExecutionStatus)


class Reading:
    """Reads executions for people."""

    def __init__(self, history: History, payloads: PayloadStore) -> None:
        self._history = history
        self._payloads = payloads
        self._kept: OrderedDict[tuple[Scope, int], Seen] = OrderedDict()

    async def seen(self, scope: Scope, execution_id: int) -> Seen:
        """Return an execution up to the ledger's end; `NotFound` when there is none."""
        key = (scope, execution_id)
        seen = self._kept.get(key) or Seen(state=State(execution_id=execution_id))
        if not seen.state.ended:
            async for event in self._history.read(execution_stream(scope, execution_id), seen.state.version + 1):
                seen = _after(seen, await resolve(self._payloads, event))
        if seen.state.version == 0:
            raise NotFound(f"there is no execution {execution_id}", hint="`noetl events last` shows the newest one")
        known = self._kept.get(key)
        # Two requests may read at once: the one that got further counts.
        if known is None or known.state.version <= seen.state.version:
            self._kept[key] = seen
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return seen

    async def ended(
        self, scope: Scope, execution_id: int, signal: Signal, wait_seconds: float, stopping: asyncio.Event
    ) -> Seen:
        """Wait for an execution's end and return it, or what it is after the time; a server that drains does not wait."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            number = signal.number
            seen = await self.seen(scope, execution_id)
            left = deadline - loop.time()
            if seen.state.ended or left <= 0 or stopping.is_set():
                return seen
            await signal.wait(number, min(left, 1.0))


def answer_of(kind: type[Shown], seen: Seen, **own: Any) -> Shown:
    """Return how an execution is, with the further fields of an answer."""
    return combined(kind, seen, seen.state, swallowed_errors=seen.state.swallowed, **own)


def view_of(seen: Seen) -> ExecutionView:
    """Return an execution with what it works on and what came of it."""
    state = seen.state
    result = state.results.get(state.result_step or "")
    return answer_of(
        ExecutionView,
        seen,
        playbook_digest=state.digest,
        active_steps=sorted(state.active),
        open_commands=open_commands(state),
        steps_entered=state.runs,
        result=None if result is None else result.data,
        result_ref=None if result is None else result.ref,
    )


def open_commands(state: State) -> int:
    """Return how many commands of an execution have not ended."""
    return sum(len(run.open) for run in state.active.values())


def _after(seen: Seen, event: Event) -> Seen:
    ends = not seen.state.ended and event.event_type in ENDING
    return Seen(
        state=evolve(seen.state, event),
        as_of_position=event.position,
        as_of_event_id=event.event_id,
        requested_at=seen.requested_at or event.event_time,
        ended_at=event.event_time if ends else seen.ended_at,
        version=seen.version or event.meta.get("version"),
    )


_KEPT: Final = 10_000
# What users say about an execution does not make it one.
_KNOWN: Final = """
SELECT EXISTS (SELECT FROM noetl.known_event WHERE execution_id = $1 AND NOT starts_with(event_type, 'business.'))
"""


class KnownExecutions:
    """Executions that were found to be there; none ever ceases to have been."""

    def __init__(self, database: Database, history: History) -> None:
        self._database = database
        self._history = history
        self._found: OrderedDict[tuple[Scope, int], None] = OrderedDict()

    async def check(self, scope: Scope, execution_id: int) -> None:
        """Raise `NotFound` unless the organization has the execution."""
        key = (scope, execution_id)
        if key in self._found or execution_id == organization_root_id(scope.tenant_id, scope.organization_id):
            return
        if not await self._exists(scope, execution_id):
            raise NotFound(
                f"there is no execution {execution_id}", hint="leave execution_id out for a fact that belongs to none"
            )
        self._found[key] = None
        while len(self._found) > _KEPT:
            self._found.popitem(last=False)

    async def _exists(self, scope: Scope, execution_id: int) -> bool:
        async with self._database.transaction(scope) as connection:
            if await connection.fetchval(_KNOWN, execution_id):
                return True
        async for _ in self._history.read(execution_stream(scope, execution_id)):
            return True
        return False
