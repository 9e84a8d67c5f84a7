"""What a ledger in memory asks of the rules that turn events into rows of work.

The rules are the folds of a layer above; whoever makes the ledger gives them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from noetl.model.event import Event

WorkRow = Mapping[str, Any]
"""A row as folds write it: ids as decimal strings, times as RFC 3339 text, without what heartbeats move."""


class WorkRows(Protocol):
    """The rows of one organization, as the events of its transitions leave them."""

    def apply(self, event: Event) -> None:
        """Change the rows as one event says; an event that makes no sound row raises."""
        ...

    def row(self, table: str, execution_id: int, row_id: str) -> WorkRow | None:
        """Return a row by its table and id; rows that belong to no execution have 0 for it."""
        ...

    def rows(self, table: str) -> Mapping[str, WorkRow]:
        """Return all rows of a table by names that no two of them share."""
        ...

    def touched(self, event: Event) -> Iterable[tuple[str, int, str]]:
        """Return the rows with a lease that an event may speak of, as `row` names them."""
        ...


NewRows = Callable[[], WorkRows]
"""Makes the rows of an organization that has none yet."""
