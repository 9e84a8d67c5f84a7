"""Replay parity of the ledger in memory: all its events, folded anew in their order, give the rows that stand."""

from __future__ import annotations

from typing import Any, NamedTuple

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.projections.folds.open_work import OpenWork
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.kernel.projections.folds.organization.tables import KEYS
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.event_lists import everything


class MemoryDifference(NamedTuple):
    """A row that is not as the events say; either side is None where there is no row."""

    table: str
    execution_id: int
    expected: Any
    found: Any


async def memory_differences(ledger: MemoryLedger, scope: Scope) -> list[MemoryDifference]:
    """Compare the rows of an organization with what its whole history folds to."""
    expected = FoldedRows()
    for event in await everything(ledger, scope):
        expected.apply(event)
    found: list[MemoryDifference] = []
    for table in (*OpenWork().tables(), *KEYS):
        told, kept = expected.rows(table), ledger.work.rows(scope, table)
        for name in sorted(told.keys() | kept.keys()):
            if told.get(name) != kept.get(name):
                row = told.get(name) or kept.get(name) or {}
                found.append(MemoryDifference(table, int(row.get("execution_id") or 0), told.get(name), kept.get(name)))
    return found


async def assert_memory_parity(ledger: MemoryLedger) -> None:
    """Fail on the first row, of any organization, that is not as the events say."""
    for scope in ledger.work.scopes():
        assert await memory_differences(ledger, scope) == []
