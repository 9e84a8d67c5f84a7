"""Snapshots of executions: folded states kept as payloads to shorten replays, and the rule when to take one.

Never the authority, never trusted blindly. A snapshot holds every row except those of ended frames, the tallies of
these, and the Merkle tree of the events behind it. An execution that grew enough is snapshotted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetl.errors import Corrupt, NoetlError, NotFound, Unsupported
from noetl.faults import reach
from noetl.kernel.payloads.codec import decode_json
from noetl.kernel.payloads.fields import Erasures, FieldsReader, nothing_erased
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.fold import RowKey, in_own_execution
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.stores.port import Projections, Snapshot
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.pages import EVICTED, EventPages, MerkleRange, counting, fold_pages
from noetl.model.canonical import canonical_json
from noetl.model.catalogue import ENDING
from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, execution_stream

MEDIA_TYPE: Final = "application/vnd.noetl.snapshot+json"
FORMAT: Final = 1
KEPT: Final = 3
"""How many snapshots of an execution are kept: the newest, and two to fall back on."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A state read from a snapshot, ready to be folded on."""

    snapshot: Snapshot
    state: FoldState
    events: int
    payloads: MerkleRange


class Snapshots:
    """Takes and loads snapshots of executions."""

    def __init__(
        self,
        history: EventPages,
        payloads: PayloadStore,
        store: Projections,
        folds: FoldRegistry,
        upcasters: Upcasters,
        erasures: Erasures = nothing_erased,
    ) -> None:
        self._history = history
        self._erasures = erasures
        self._payloads = payloads
        self._store = store
        self._folds = folds
        self._upcasters = upcasters

    async def newest(self, scope: Scope, execution_id: int, upto: int) -> tuple[Resumed | None, list[str]]:
        """Return the newest valid snapshot at or before a position, if there is one, and why others were passed over."""
        warnings: list[str] = []
        for snapshot in await self._store.load_snapshots(scope, "execution", str(execution_id), upto):
            try:
                return await self._load(snapshot), warnings
            except NoetlError as problem:
                warning = f"the snapshot at position {snapshot.version} is not used: {problem.message}"
                _log.warning("execution %s: %s", execution_id, warning)
                warnings.append(warning)
        return None, warnings

    async def take(self, scope: Scope, execution_id: int, upto: int | None = None) -> Snapshot:
        """Fold an execution from its last valid snapshot up to a position, or to its last event, and keep the state."""
        last = (1 << 63) - 1 if upto is None else upto
        resumed, _ = await self.newest(scope, execution_id, last)
        if resumed is None:
            state, events, payloads, start = self._empty(), 0, MerkleRange(), 1
        else:
            state, events, payloads, start = (
                resumed.state,
                resumed.events,
                resumed.payloads,
                resumed.snapshot.version + 1,
            )
        pages = self._history.execution_pages(scope, execution_id, start, to_position=upto)
        fields = FieldsReader(self._payloads, self._erasures)
        folded = await fold_pages(state, pages, fields, counting(payloads))
        if fields.broken:
            raise Unsupported(f"a snapshot has every event of its execution, and {fields.broken[0].sentence()}")
        if resumed is not None and not folded:
            return resumed.snapshot
        if not events + folded:
            raise NotFound(f"execution {execution_id} has no events to take a snapshot of")
        return await self._keep(scope, execution_id, state, events + folded, payloads)

    def _empty(self) -> FoldState:
        return FoldState(self._folds.folds(), upcasters=self._upcasters, evict=EVICTED)

    def _fold_versions(self) -> dict[str, int]:
        return {fold.projection: fold.version for fold in self._folds.folds()}

    async def _keep(
        self, scope: Scope, execution_id: int, state: FoldState, events: int, payloads: MerkleRange
    ) -> Snapshot:
        position = state.positions[execution_stream(scope, execution_id).shard]
        document = {
            "format": FORMAT,
            "execution_id": str(execution_id),
            "position": position,
            "events": events,
            "payloads": payloads.export(),
            "state": state.export(),
        }
        data = canonical_json(document)
        reach("snapshot.before_store")
        ref = await self._payloads.store(scope, data, MEDIA_TYPE)
        reach("snapshot.after_store")
        snapshot = Snapshot(
            scope=scope,
            aggregate_type="execution",
            aggregate_id=str(execution_id),
            version=position,
            fold_versions=self._fold_versions(),
            upcaster_digest=self._upcasters.digest(),
            payload_root=payloads.root(),
            encryption_context=_encryption_context(scope, ref),
            checksum=state.checksum(),
            payload_ref=ref,
        )
        await self._store.save_snapshot(snapshot)
        reach("snapshot.after_commit")
        await self._store.prune_snapshots(scope, "execution", str(execution_id), KEPT)
        return snapshot

    async def _load(self, snapshot: Snapshot) -> Resumed:
        if snapshot.fold_versions != self._fold_versions():
            raise Unsupported(f"it was made by other folds ({_versions(snapshot.fold_versions)})")
        if snapshot.upcaster_digest != self._upcasters.digest():
            raise Unsupported("it was made with other upcasters")
        document = decode_json(await self._payloads.fetch(snapshot.scope, snapshot.payload_ref))
        try:
            resumed = self._restored(snapshot, document)
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as problem:
            raise Unsupported(f"it is not in the form this program writes ({type(problem).__name__})") from problem
        if resumed.payloads.root() != snapshot.payload_root:
            raise Corrupt("its payload digests do not add up to the recorded root")
        if resumed.state.checksum() != snapshot.checksum:
            raise Corrupt("its rows do not add up to the recorded checksum")
        return resumed

    def _restored(self, snapshot: Snapshot, document: Mapping[str, Any]) -> Resumed:
        execution_id = int(snapshot.aggregate_id)
        found = (document["format"], document["execution_id"], document["position"])
        if found != (FORMAT, snapshot.aggregate_id, snapshot.version):
            raise Corrupt("its bytes are of another execution, position or format")
        state = FoldState.restore(self._folds.folds(), document["state"], upcasters=self._upcasters, evict=EVICTED)
        if state.positions != {execution_stream(snapshot.scope, execution_id).shard: snapshot.version}:
            raise Corrupt("its state ends at another position")
        return Resumed(snapshot, state, document["events"], MerkleRange.restore(document["payloads"]))


def _encryption_context(scope: Scope, ref: PayloadRef) -> str:
    """Say under whose key the bytes stand: with it destroyed, the snapshot is as unreadable as what it was made from."""
    return f"tenant/{scope.tenant_id}/{ref.encoding}" if "aes256gcm" in ref.encoding else "none"


def _versions(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


class SnapshotKeeper:
    """Counts the events of each open execution and takes a snapshot whenever the count crosses the interval.

    A snapshot that cannot be taken is a line in the log: replays stay longer for a while, nothing else is lost.
    """

    def __init__(self, snapshots: Snapshots, store: Projections, interval: int) -> None:
        self._snapshots = snapshots
        self._store = store
        self._interval = interval
        self._counts: dict[tuple[Scope, int], int] = {}

    async def on_batch(self, _shard: int, events: Sequence[Event]) -> None:
        """Do what is due after a projected batch; the form in which a projector calls it."""
        await self.maybe_take(events)

    async def maybe_take(self, events: Sequence[Event]) -> list[Snapshot]:
        """Take the snapshots that are due after a batch of one shard was projected; return them."""
        grown: dict[tuple[Scope, int], list[Event]] = {}
        for event in events:
            if in_own_execution(event):
                grown.setdefault((Scope(event.tenant_id, event.organization_id), event.execution_id), []).append(event)
        taken = []
        for (scope, execution_id), own in grown.items():
            before = await self._count_before(scope, execution_id, own)
            after = self._counts[scope, execution_id] = before + len(own)
            if any(event.event_type in ENDING for event in own):
                # Only stragglers come after the end.
                del self._counts[scope, execution_id]
            if before // self._interval < after // self._interval:
                snapshot = await self._take(scope, execution_id, own[-1].position)
                taken += [] if snapshot is None else [snapshot]
        return taken

    async def _count_before(self, scope: Scope, execution_id: int, own: Sequence[Event]) -> int:
        known = self._counts.get((scope, execution_id))
        if known is not None:
            return known
        if own[0].stream_version == 1 and own[0].stream_id == f"execution/{execution_id}":
            return 0
        # This process joined in the middle; the projected row, written with the batch, has counted all along.
        key = RowKey(scope.tenant_id, scope.organization_id, "execution", str(execution_id))
        for stored in await self._store.load_projections([key]):
            return max(0, int(stored.row["events"]) - len(own))
        return 0

    async def _take(self, scope: Scope, execution_id: int, upto: int) -> Snapshot | None:
        try:
            return await self._snapshots.take(scope, execution_id, upto)
        except NoetlError as problem:
            _log.warning("no snapshot of execution %s at position %s: %s", execution_id, upto, problem.message)
            return None
