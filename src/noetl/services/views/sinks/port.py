"""The promise of a sink: rows and barrier of a batch stand together or not at all, and a batch that stands is not repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from noetl.services.views.barriers import Barrier, Batch


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What a view holds at its newest barrier, read at one moment."""

    barrier: Barrier | None
    late: tuple[Barrier, ...]
    """The barriers that left late events out."""
    rows: Mapping[str, Any]
    """Rows by key, as they were written."""
    stored: dict[str, Any] | None = None
    """Columns and files, where the rows are a dataset's."""


class Sink(Protocol):
    """Where the rows of one version are kept, as one runner uses it."""

    async def open(self) -> None:
        """Make sure that the place is there, and that no runner before this one can write to it any more."""
        ...

    async def standing(self) -> Barrier | None:
        """Return the newest barrier."""
        ...

    async def apply(self, batch: Batch) -> Barrier:
        """Write a batch with its barrier, unless it stands; return the barrier that stands then. May be repeated.

        Raises `LeaseLost` if another runner has the version by now, `Conflict` if the batch fits nowhere.
        """
        ...

    async def held(self) -> Held:
        """Return everything the version holds."""
        ...

    async def serve(self) -> None:
        """Let readers see this version in place of the one before. May be repeated."""
        ...

    async def clear(self, versions: Sequence[str]) -> None:
        """Remove what other versions hold. May be repeated."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
