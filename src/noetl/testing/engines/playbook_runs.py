"""Runs playbooks for real on any engine, and reads what they left behind."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import msgspec

from noetl.engine.catalog.playbooks import Entry
from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.plan.state import State
from noetl.engine.worker.worker import Worker
from noetl.kernel.ledger.port import LedgerReader
from noetl.model.stream import Scope

WAIT_SECONDS = 60.0
SLOTS = 8

OpenWorker = Callable[[Dispatch, int], AbstractAsyncContextManager[Worker]]
"""Gives a running worker with so many slots for the time of a block."""


def playbook(body: str, path: str = "tests/it") -> str:
    """Return the text of a playbook from everything below its header."""
    name = path.rpartition("/")[2]
    head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {path}}}\n"
    return head + textwrap.dedent(body)


class PlaybookRuns:
    """Registers playbooks and runs them, with one worker that is started when it is first needed."""

    def __init__(self, engine: Engine, ledger: LedgerReader, scope: Scope, open_worker: OpenWorker) -> None:
        self.engine = engine
        self.scope = scope
        self._ledger = ledger
        self._open_worker = open_worker
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None

    async def worker(self, slots: int = SLOTS) -> Worker:
        """Return the worker of this test, started at the first call; only that call may choose its slots."""
        if self._worker is None:
            opened = self._open_worker(self.engine.dispatch(self.scope), slots)
            self._worker = await self._stack.enter_async_context(opened)
        return self._worker

    async def close(self) -> None:
        """Let the worker finish what it has begun."""
        await self._stack.aclose()

    async def register(self, text: str) -> Entry:
        """Register a playbook."""
        return (await self.engine.catalog.register(self.scope, text)).entry

    async def start(self, text: str, workload: dict[str, Any] | None = None) -> State:
        """Register a playbook and start it, with a worker at hand."""
        await self.worker()
        return await self.begin(text, workload)

    async def begin(self, text: str, workload: dict[str, Any] | None = None) -> State:
        """Register a playbook and start it; who works on it is left to the test."""
        entry = await self.register(text)
        return await self.engine.start(self.scope, entry, workload, requested_by="tests")

    async def finished(self, execution_id: int) -> State:
        """Wait for the end of an execution; one that does not come to an end fails the test."""
        state = await self.engine.finished(self.scope, execution_id, WAIT_SECONDS)
        assert state.ended, f"execution {execution_id} has not ended: active {state.active}, waiting {state.waiting}"
        return state

    async def run(self, text: str, workload: dict[str, Any] | None = None) -> State:
        """Run a playbook to its end."""
        return await self.finished((await self.start(text, workload)).execution_id)

    async def data(self, state: State, step: str) -> Any:
        """Return what a step came to, fetched if it is kept outside the ledger."""
        return await self.engine.executions.data(self.scope, state.results[step])

    async def events(self, execution_id: int, *types: str) -> list[dict[str, Any]]:
        """Return the events of an execution in the order they were minted, all or those of some types."""
        found = [event async for event in self._ledger.read_execution(self.scope, execution_id)]
        return [
            msgspec.structs.asdict(event)
            for event in sorted(found, key=lambda event: event.event_id)
            if not types or event.event_type in types
        ]

    def as_shown(self, state: State) -> str:
        """Return all that a state says as text, for looking something up in it."""
        return msgspec.json.encode(state, order="sorted").decode()
