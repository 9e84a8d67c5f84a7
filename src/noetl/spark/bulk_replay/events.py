"""One shard's events in the order of positions: from files of the lake, then from the ledger, as Arrow batches.

Of the lake, only row groups that hold the shard are read. A file may hold several shards, in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from noetl.errors import Corrupt, Unavailable
from noetl.model.dataset import FileEntry
from noetl.model.stream import Scope
from noetl.spark.bulk_replay.work import BulkWork, ShardPart
from noetl.spark.lake.integrity.checks import Checks
from noetl.spark.lake.integrity.read_errors import reading
from noetl.spark.lake.storage import Lake
from noetl.spark.source.batches import Reading
from noetl.spark.source.options import SourceOptions, source_options
from noetl.spark.source.ranges import Range

_BATCH_ROWS: Final = 16_384
_SHARED_TEXTS: Final = ("tenant_id", "organization_id", "event_type", "schema_name", "node_name", "status", "meta")
"""Columns with few different texts, which stay encoded as the file has them."""


@dataclass(frozen=True)
class Group:
    """A row group that holds events of the shard, and the positions of the first and last of them."""

    path: str
    footer: pq.FileMetaData
    number: int
    first: int
    last: int


class ShardFiles:
    """The files of the lake, as one shard of one organization reads them up to a position."""

    def __init__(self, lake: Lake, entries: Iterable[FileEntry], scope: Scope, shard: int, last: int) -> None:
        self._lake = lake
        self._entries = tuple(entries)
        self._checks = Checks(lake)
        self._scope = scope
        self._shard = shard
        self._last = last

    def batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Give the shard's events by position."""
        before = 0
        for run in _runs(sorted(self._groups(), key=attrgetter("first"))):
            for batch in self._run(run, columns):
                positions = batch.column("position")
                if positions[0].as_py() <= before or not _ascending(positions):
                    raise Corrupt(
                        f"the event lake has a position of shard {self._shard} twice, near file {run[0].path}",
                        hint="`noetl lake verify` tells what differs, `noetl lake rebuild` writes the lake anew",
                    )
                before = positions[-1].as_py()
                yield batch

    def _groups(self) -> Iterator[Group]:
        """Look at all files one after another: there may be more than can be open at once."""
        for entry in self._entries:
            self._check(entry)
            with self._opened(entry.path) as file:
                for number in range(file.num_row_groups):
                    bounds = self._bounds(file, number)
                    if bounds is not None and bounds[0] <= self._last:
                        yield Group(entry.path, file.metadata, number, *bounds)

    def _check(self, entry: FileEntry) -> None:
        """Refuse a file that is not what was committed; one that is gone was put together with others."""
        damage = self._checks.quick_damage(entry)
        if damage is not None:
            raise _gone(entry.path) if damage.why == "missing" else damage.error()

    def _bounds(self, file: pq.ParquetFile, number: int) -> tuple[int, int] | None:
        """Return the first and last position of the shard in a row group; by statistics where it has no other shard."""
        shards, positions = (_statistics(file.metadata.row_group(number), name) for name in ("shard", "position"))
        if shards is not None and not shards[0] <= self._shard <= shards[1]:
            return None
        if shards is not None and positions is not None and shards[0] == shards[1]:
            return positions
        rows = file.read_row_group(number, columns=["shard", "position"])
        found = pc.min_max(rows.filter(pc.equal(rows.column("shard"), self._shard)).column("position")).as_py()
        return None if found["min"] is None else (found["min"], found["max"])

    def _run(self, run: list[Group], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Give the events of row groups whose positions overlap, in order; mostly it is one, and in order as it is."""
        parts = itertools.chain.from_iterable(self._rows_of(group, columns) for group in run)
        if len(run) > 1:
            whole = pa.Table.from_batches(list(parts)).sort_by("position").combine_chunks()
            parts = iter(whole.to_batches())
        yield from filter(len, parts)

    def _rows_of(self, group: Group, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        with self._opened(group.path, group.footer, columns) as file:
            yield from map(self._own, file.iter_batches(_BATCH_ROWS, row_groups=[group.number], columns=list(columns)))

    @contextmanager
    def _opened(
        self, path: str, footer: pq.FileMetaData | None = None, columns: tuple[str, ...] = ()
    ) -> Iterator[pq.ParquetFile]:
        shared = [name for name in _SHARED_TEXTS if name in columns]
        try:
            opened = self._lake.opened(path)
        except FileNotFoundError:
            raise _gone(path) from None
        with reading(path, self._lake), opened:
            yield pq.ParquetFile(
                opened,
                metadata=footer,
                read_dictionary=shared,
                pre_buffer=True,
                page_checksum_verification=True,
            )

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep what is the organization's, the shard's, and not too late."""
        scope = self._scope
        wanted = pc.and_(
            pc.and_(pc.equal(batch.column("shard"), self._shard), pc.less_equal(batch.column("position"), self._last)),
            pc.and_(
                pc.equal(_texts(batch, "tenant_id"), scope.tenant_id),
                pc.equal(_texts(batch, "organization_id"), scope.organization_id),
            ),
        )
        return batch.filter(wanted)


def _gone(path: str) -> Unavailable:
    return Unavailable(
        f"file {path} of the event lake is gone", hint="it was put together with others meanwhile; try again"
    )


def _runs(groups: list[Group]) -> Iterator[list[Group]]:
    """Put row groups together whose positions overlap."""
    run: list[Group] = []
    last = 0
    for group in groups:
        if run and group.first > last:
            yield run
            run = []
        run.append(group)
        last = max(last, group.last)
    if run:
        yield run


def _texts(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).cast(pa.string())


def _statistics(group: Any, name: str) -> tuple[int, int] | None:
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == name:
            found = column.statistics
            return (found.min, found.max) if found is not None and found.has_min_max else None
    return None


def _ascending(positions: pa.Array) -> bool:
    if len(positions) < 2:
        return True
    return bool(pc.all(pc.less(positions.slice(0, len(positions) - 1), positions.slice(1))).as_py())


def batches(work: BulkWork, part: ShardPart, last: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Give the shard's events up to a position."""
    upto = min(last, part.lake_last)
    if upto:
        entries = (file.entry for file in work.asked.files if file.low <= part.shard <= file.high)
        yield from ShardFiles(work.lake, entries, work.asked.scope, part.shard, upto).batches(columns)
    reading = Reading(ledger_options(work), columns=columns)
    first = part.lake_last + 1
    # Where archives have a part, events are merged one by one; what lies behind them need not be.
    for end in (min(part.archived_last, last), last):
        if first <= end:
            yield from reading.batches([Range(part.shard, first, end)])
            first = end + 1


def ledger_options(work: BulkWork) -> SourceOptions:
    """Return how the ledger is read: as the organization, and unchanged, since upcasting is the fold's business here."""
    return SourceOptions.parse(source_options(work.asked.scope, {**work.reach, "upcasters": ()}))
