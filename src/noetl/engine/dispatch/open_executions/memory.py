"""Open executions in memory: the rows that transitions left in a `MemoryLedger`, and its events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from noetl.engine.dispatch.open_executions.port import Descendant, OpenExecution, OpenHead
from noetl.kernel.ledger.memory_work import MemoryWork, WorkRow
from noetl.kernel.ledger.port import LedgerReader
from noetl.model.event import Event
from noetl.model.stream import Scope, execution_stream


class MemoryOpenExecutions:
    """See `OpenExecutions` for the promises."""

    def __init__(self, work: MemoryWork, ledger: LedgerReader) -> None:
        self._work = work
        self._ledger = ledger
        self._deciding: dict[tuple[Scope, int], tuple[int, int]] = {}

    async def head(self, scope: Scope, execution_id: int) -> OpenHead | None:
        """Return an open execution with its version."""
        row = self._work.row(scope, "execution_head", execution_id, str(execution_id))
        if row is None:
            return None
        version = 0
        async for event in self._ledger.read(execution_stream(scope, execution_id)):
            version = event.stream_version
        return OpenHead(
            execution_id=execution_id,
            version=version,
            catalog_id=row["catalog_id"],
            path=row["path"],
            parent_execution_id=_id(row["parent_execution_id"]),
            parent_command_id=row["parent_command_id"],
        )

    async def ended(self, scope: Scope, executions: Sequence[int]) -> list[int]:
        """Return those executions that are not open."""
        return [one for one in executions if not self._is_open(scope, one)]

    async def waited_for(self, scope: Scope, execution_id: int) -> list[int]:
        """Return the open executions that an execution waits for."""
        found = []
        for row in self._rows(scope):
            if _id(row["parent_execution_id"]) != execution_id:
                continue
            requested = await self._requested(scope, int(row["execution_id"]))
            if requested is not None and requested.meta.get("detached") is None:
                found.append(int(row["execution_id"]))
        return found

    async def below(self, scope: Scope, executions: Sequence[int]) -> list[Descendant]:
        """Return the open executions below these."""
        found: list[Descendant] = []
        above, level = set(executions), 0
        while above:
            level += 1
            rows = [row for row in self._rows(scope) if _id(row["parent_execution_id"]) in above]
            these = [Descendant(int(row["execution_id"]), int(row["parent_execution_id"]), level) for row in rows]
            found += sorted(these, key=lambda one: one.execution_id)
            above = {one.execution_id for one in these}
        return found

    async def outlived(self, scope: Scope, execution_id: int) -> list[Descendant]:
        """Return the open executions that an execution started and whose parent has ended."""
        found = []
        for one in self._outliving(scope):
            parent = above = one.parent_execution_id
            while above is not None and above != execution_id:
                requested = await self._requested(scope, above)
                above = None if requested is None else requested.parent_execution_id
            if above is not None and parent is not None:
                found.append(Descendant(one.execution_id, parent, 1))
        return sorted(found, key=lambda one: one.execution_id)

    async def top_of(self, scope: Scope, execution_id: int) -> OpenExecution | None:
        """Return the highest execution above an open one, if its own parent has ended."""
        at: int | None = execution_id
        while at is not None:
            row = self._work.row(scope, "execution_head", at, str(at))
            if row is None:
                return None
            parent = _id(row["parent_execution_id"])
            if parent is not None and not self._is_open(scope, parent):
                return OpenExecution(scope, at, parent)
            at = parent
        return None

    async def orphans(self, idle_seconds: float, but: Collection[int]) -> list[OpenExecution]:
        """Return executions whose parent has ended."""
        return [
            one
            for scope in self._work.scopes()
            for one in self._outliving(scope, idle_seconds)
            if one.execution_id not in but
        ]

    async def overdue(self) -> list[OpenExecution]:
        """Return executions whose time is over."""
        now = self._work.now()
        found = [(row["deadline"], scope, row) for scope in self._work.scopes() for row in self._rows(scope)]
        late = [each for each in found if each[0] is not None and _time(each[0]) < now]
        return [
            OpenExecution(scope, int(row["execution_id"])) for _, scope, row in sorted(late, key=lambda one: one[0])
        ]

    async def deciding(self, scope: Scope, execution_id: int, version: int) -> int:
        """Note that a lengthy decision begins, and return how many have."""
        at, begun = self._deciding.get((scope, execution_id), (version, 0))
        self._deciding[scope, execution_id] = (version, begun + 1 if at == version else 1)
        return self._deciding[scope, execution_id][1]

    async def decided(self, scope: Scope, execution_id: int) -> None:
        """Forget the lengthy decisions about an execution."""
        self._deciding.pop((scope, execution_id), None)

    async def idle(self, idle_seconds: float) -> list[OpenExecution]:
        """Return executions that have no command."""
        found = []
        for scope in self._work.scopes():
            busy = {row["execution_id"] for row in self._work.rows(scope, "command").values()}
            for row in self._heads(scope, idle_seconds):
                if row["execution_id"] not in busy:
                    found.append(OpenExecution(scope, int(row["execution_id"])))
        return found

    def _heads(self, scope: Scope, idle_seconds: float) -> Iterable[WorkRow]:
        """Give executions that were requested so long ago, the oldest first."""
        since = self._work.now() - timedelta(seconds=idle_seconds)
        rows = [row for row in self._rows(scope) if _time(row["requested_at"]) < since]
        return sorted(rows, key=lambda row: _time(row["requested_at"]))

    def _outliving(self, scope: Scope, idle_seconds: float = 0.0) -> Iterator[OpenExecution]:
        rows = self._heads(scope, idle_seconds) if idle_seconds else self._rows(scope)
        for row in rows:
            parent = _id(row["parent_execution_id"])
            if parent is not None and not self._is_open(scope, parent):
                yield OpenExecution(scope, int(row["execution_id"]), parent)

    async def _requested(self, scope: Scope, execution_id: int) -> Event | None:
        async for event in self._ledger.read(execution_stream(scope, execution_id)):
            return event if event.event_type == "execution.requested" else None
        return None

    def _is_open(self, scope: Scope, execution_id: int) -> bool:
        return self._work.row(scope, "execution_head", execution_id, str(execution_id)) is not None

    def _rows(self, scope: Scope) -> Iterable[WorkRow]:
        return list(self._work.rows(scope, "execution_head").values())


def _id(text: str | None) -> int | None:
    return None if text is None else int(text)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
