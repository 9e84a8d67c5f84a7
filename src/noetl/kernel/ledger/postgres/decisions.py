"""Decisions on rows that no event can write: change them and record why, in one transaction.

A transition (`Ledger.transact`) writes all rows that follow from events. Two kinds of rows do not: `noetl.catalog` holds
the source of a playbook, to which its event only refers, and the rows of archives hold lists of objects that the event
names by their manifest. They are written by their own store, in the transaction of their event.

This is a promise of PostgreSQL, not of every ledger: whoever takes it has SQL of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.event import Appended, Draft
from noetl.model.stream import Scope, Stream


class RowDecision(Protocol):
    """An open transaction: change rows first, then append, then leave the block; nothing may follow the append."""

    @property
    def connection(self) -> Connection:
        """Where the rows are changed, as this organization."""
        ...

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record drafts as `Ledger.append` does; a refusal raises and thereby undoes the changes of rows too."""
        ...


class RowDecisions(Protocol):
    """A ledger in the same database as rows that are decided on."""

    def decision(self, scope: Scope) -> AbstractAsyncContextManager[RowDecision]:
        """Open a transaction for changing rows and recording that change as events, both or neither."""
        ...
