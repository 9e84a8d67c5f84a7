"""When to take snapshots: batches of projected events go in, and each execution that grew enough is snapshotted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from noetl.errors import NoetlError
from noetl.model.catalogue import ENDING
from noetl.model.event import Event
from noetl.model.stream import Scope
from noetl.project.folds.fold import RowKey, in_own_execution
from noetl.project.port import Projections, Snapshot
from noetl.replay.snapshot import Snapshots

_log = logging.getLogger(__name__)


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
