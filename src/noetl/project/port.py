"""What a projection store promises. `noetl.testing.projection_contract` checks every adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.project.folds.fold import FoldedRow, RowKey


class StoredRow(msgspec.Struct, frozen=True):
    """A projected row with the checksum it was stored with."""

    folded: FoldedRow
    execution_id: int
    status: str | None
    checksum: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a folded state is kept and everything needed to decide whether it may be used. Never the authority."""

    scope: Scope
    aggregate_type: str
    """`execution` or `organization`."""
    aggregate_id: str
    version: int
    """The position it covers, for an execution."""
    fold_versions: dict[str, int]
    upcaster_digest: str
    payload_root: str
    """Merkle root of the payload digests that the folded events refer to."""
    encryption_context: str
    checksum: str
    """The checksum of the folded state."""
    payload_ref: PayloadRef
    """The exported state; its digest validates the bytes."""
    created_at: datetime | None = None


class Page(msgspec.Struct, frozen=True):
    """Which part of a result is wanted: rows after this id, at most so many."""

    after: str | None = None
    limit: int = 100


class ProjectionStore(Protocol):
    """Rows derived from events, with checkpoints and snapshots; all of it can be dropped and built again."""

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard is projected."""
        ...

    async def load_projections(self, keys: Sequence[RowKey]) -> list[FoldedRow]:
        """Return the stored rows among these, of any organization."""
        ...

    async def save_projections(
        self, shard: int, after: int, upto: int, rows: Sequence[FoldedRow], events: Sequence[Event]
    ) -> bool:
        """Write rows and move the shard's checkpoint from `after` to `upto`, both or neither.

        Returns False and writes nothing when the checkpoint is not at `after`: another projector of the shard was
        faster, and the batch must be folded anew. The events are those the rows were folded from; what else is derived
        from single events (result references) is written from them in the same transaction.
        """
        ...

    async def replace_shard(
        self, shard: int, upto: int, rows: AsyncIterator[FoldedRow], events: AsyncIterator[Event]
    ) -> int:
        """Replace everything of a shard by these rows, in one transaction; readers see the old until it ends."""
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Record a snapshot; the same one again changes nothing."""
        ...

    async def load_snapshots(
        self, scope: Scope, aggregate_type: str, aggregate_id: str, upto: int | None = None
    ) -> list[Snapshot]:
        """Return the snapshots at or before a version, the newest first."""
        ...

    def query(
        self, scope: Scope, projection: str, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncIterator[StoredRow]:
        """Give the rows of a projection in an organization, by row id; filters on `execution_id` and `status`.

        Without a page all rows are given, in bounded memory and from one moment: the rows and `checkpoints` read in
        the same `consistent` block belong together.
        """
        ...
