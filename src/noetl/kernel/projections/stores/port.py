"""What a projection store promises. `noetl.testing.contracts.projections.contract` checks every adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, Stream


class StoredRow(msgspec.Struct, frozen=True):
    """A projected row with the status and the checksum it was stored with."""

    folded: FoldedRow
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


class PayloadPlace(NamedTuple):
    """Where the payload store is: its tier, and what the address of every object in it begins with."""

    store_tier: str
    address: str


class Page(msgspec.Struct, frozen=True):
    """Which part of a result is wanted: rows after this id, at most so many."""

    after: str | None = None
    limit: int = 100


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a shard's projection stands still."""

    code: str
    message: str
    hint: str | None = None
    position: int | None = None
    event_id: str | None = None
    projection: str | None = None
    since: datetime | None = None

    @classmethod
    def of(cls, error: NoetlError) -> Failure:
        """Write an error down, with the event it is about when it names one."""
        details = error.details
        position, event_id, projection = details.get("position"), details.get("event_id"), details.get("projection")
        return cls(
            code=error.code,
            message=error.message,
            hint=error.hint,
            position=position if isinstance(position, int) else None,
            event_id=None if event_id is None else str(event_id),
            projection=None if projection is None else str(projection),
        )


class ShardState(msgspec.Struct, frozen=True):
    """How far a shard is projected, how many rows it has, and what stops it, if anything does."""

    shard: int
    position: int
    rows: int
    updated_at: datetime
    failure: Failure | None = None


class StreamChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch changes in the broken streams of its shard."""

    known: tuple[BrokenStream, ...] = ()
    """Those that the batch was folded with; when others are there by then, it must be folded anew."""
    broken: tuple[BrokenStream, ...] = ()
    """Those that stand still from now on, or elsewhere than before."""
    mended: tuple[Stream, ...] = ()
    """Those that go on."""
    held: tuple[Event, ...] = ()
    """Events that were not folded and can be read from nowhere else."""


NOTHING_BROKEN = StreamChanges()


class Replaced(msgspec.Struct, frozen=True):
    """What a rebuild of a shard changed: rows before and after, and how many differ, came or went."""

    before: int
    after: int
    changed: int
    added: int
    removed: int


class Replacement(Protocol):
    """A shard being built anew, unseen by readers until the block that gave it ends."""

    async def put(self, rows: Sequence[FoldedRow]) -> None:
        """Add rows, each once."""
        ...

    async def finish(self, upto: int, folds: Mapping[str, int], broken: Sequence[BrokenStream] = ()) -> Replaced:
        """Put what was added in the place of everything the shard had, with its checkpoint at `upto`."""
        ...


class ProjectionView(Protocol):
    """Projections as they were at one moment; rows and checkpoints read here belong together."""

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard was projected at that moment."""
        ...

    async def broken_streams(self) -> list[BrokenStream]:
        """Return the organization's streams that stood still at that moment."""
        ...

    def query(
        self, projection: str | None = None, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncIterator[StoredRow]:
        """Give rows of a projection by row id, or of all by projection and row id, streamed in bounded memory.

        Filters are equalities on `execution_id` (a number) and `status`; any other is an InputError. Ids are ordered by
        their UTF-8 bytes. A page needs a projection. Only one iteration of a view may be advanced at a time.
        """
        ...


class Projections(Protocol):
    """What is read of projections, whichever store has them, with the snapshots taken of folded state."""

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard is projected, in every store."""
        ...

    async def load_projections(self, keys: Sequence[RowKey]) -> list[FoldedRow]:
        """Return the stored rows among these, of any organization."""
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Record a snapshot; the same aggregate and version again changes nothing."""
        ...

    async def load_snapshots(
        self, scope: Scope, aggregate_type: str, aggregate_id: str, upto: int | None = None
    ) -> list[Snapshot]:
        """Return the snapshots at or before a version, the newest first."""
        ...

    async def prune_snapshots(self, scope: Scope, aggregate_type: str, aggregate_id: str, keep: int) -> None:
        """Forget all but the newest snapshots; garbage collection removes their bytes later."""
        ...

    def snapshot_view(self, scope: Scope) -> AbstractAsyncContextManager[ProjectionView]:
        """Give an organization's projections as they are at one moment, for the time of the block.

        What is projected meanwhile is not seen, so a verifier reads `checkpoints`, folds the ledger up to there and
        compares with `query`. A view may stay open for as long as that takes; it makes nobody wait. Where several stores
        have a part, each shows a moment of its own, at or after the checkpoints.
        """
        ...

    def query(
        self, scope: Scope, projection: str, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncIterator[StoredRow]:
        """Give the rows of a projection in an organization from one moment, as `ProjectionView.query` does."""
        ...


class ProjectionStore(Projections, Protocol):
    """Rows derived from events, with checkpoints and snapshots; all of it can be dropped and built again."""

    async def save_projections(
        self,
        shard: int,
        after: int,
        upto: int,
        rows: Sequence[FoldedRow],
        events: Sequence[Event],
        folds: Mapping[str, int] | None = None,
        streams: StreamChanges = NOTHING_BROKEN,
    ) -> bool:
        """Write rows and broken streams and move the shard's checkpoint from `after` to `upto`, all or nothing.

        Returns False and writes nothing when the checkpoint is not at `after`, or other streams are broken than `streams`
        knows: another projector of the shard was faster, and the batch must be folded anew. The events are those the rows were folded from. A recorded failure of the
        shard is cleared.

        `folds` are the versions of all folds that ran, by projection. Rows of other folds must not be mixed in: when the
        shard was projected by others, `Unsupported` is raised and nothing is written; the shard must be rebuilt.
        """
        ...

    def replacing(self, shard: int) -> AbstractAsyncContextManager[Replacement]:
        """Build a shard anew in one transaction; whoever projects the shard waits until the block ends.

        Readers see the old rows until then. Leaving the block by an error, or without `finish`, changes nothing.
        """
        ...

    async def record_failure(self, shard: int, after: int, failure: Failure) -> None:
        """Note why a shard stands still at a checkpoint, for operators to see; nothing if it has moved meanwhile.

        While the same failure is recorded again and again, `since` stays that of the first time.
        """
        ...

    async def shard_states(self) -> list[ShardState]:
        """Return the state of every shard, in order."""
        ...

    async def broken_streams(self, shard: int | None = None) -> list[BrokenStream]:
        """Return the streams of a shard, or of all, that stand still while their shard goes on, by position."""
        ...

    def held_events(self, broken: BrokenStream) -> AsyncIterator[Event]:
        """Give the events that a broken stream has kept back, from where it stands on, by position."""
        ...
