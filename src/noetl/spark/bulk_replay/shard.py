"""One shard of a bulk replay, in an executor: its events are read, folded and summed; the answer is small.

The folds and upcasters are those of a single process, and so is the state that applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.projections.folds.checksum import Sums, bucket
from noetl.kernel.projections.folds.fold import Fold, FoldedRow
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.folds.wanted import Rows
from noetl.kernel.projections.gc_tuning import seldom_searched
from noetl.kernel.projections.upcast import Upcasters
from noetl.spark.bulk_replay.claims import Claims
from noetl.spark.bulk_replay.code_transfer import is_ours, unpacked
from noetl.spark.bulk_replay.event_decoder import ALL, HEARD, heard_events, whole_events
from noetl.spark.bulk_replay.events import batches, ledger_options
from noetl.spark.bulk_replay.progress import Teller
from noetl.spark.bulk_replay.work import BulkWork, Failure, ShardAnswer, ShardPart, row_fields

if TYPE_CHECKING:
    import pyarrow
import asyncio
from typing import Final

from noetl.kernel.payloads.fields import FieldsReader
from noetl.kernel.projections.field_witness import Lost, Witness
from noetl.kernel.projections.folds.checksum import text_number
from noetl.model.broken_stream import BrokenStream
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.spark.source.connections import given, transaction
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.payload_store import open_store

ANSWERS = "shard int, answer binary"


def fold_shards(work: BulkWork, numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Do the parts whose numbers stand in one partition of a DataFrame."""
    import pyarrow as pa

    for batch in numbers:
        for number in batch.column(0).to_pylist():
            answer = answered(work, work.asked.parts[number])
            yield pa.RecordBatch.from_arrays(
                [pa.array([answer.shard], pa.int32()), pa.array([msgspec.msgpack.encode(answer)], pa.binary())],
                names=["shard", "answer"],
            )


def answered(work: BulkWork, part: ShardPart) -> ShardAnswer:
    """Do one part. What goes wrong on the way is told like any other answer, for Spark would tell it in its own words."""
    folding = _Folding(work, part)
    try:
        with seldom_searched():
            return folding.run()
    except NoetlError as problem:
        details = {name: value for name, value in problem.details.items() if isinstance(value, str | int | None)}
        failure = Failure(code=problem.code, message=problem.message, hint=problem.hint, details=details)
        return ShardAnswer(shard=part.shard, last=0, failure=failure, claimed=folding.claims.digests())


class _Folding:
    """The state of one part."""

    def __init__(self, work: BulkWork, part: ShardPart) -> None:
        self._work = work
        self._part = part
        self.claims = Claims()
        folds, self._upcasters = unpacked(work.asked.code)
        self._folds = tuple(fold if fold.per_execution else self._claiming(fold) for fold in folds)
        # Who else listens, or changes events on the way, may look at any field and do with it as it likes.
        self._heard = all(map(is_ours, folds)) and self._upcasters.digest() == Upcasters().digest()

    def run(self) -> ShardAnswer:
        """Fold the shard and sum what came of it."""
        asked, part = self._work.asked, self._part
        wanted = Rows(asked.projections, asked.limit)
        expected = Sums()
        reading = FieldsReading(self._work, part.shard, watched=asked.sums)
        folds = reading.watching(self._folds)
        state = FoldState(folds, upcasters=self._upcasters, on_ended=self._taker(wanted, expected))
        events, last, found, unsound = 0, part.last or 0, None, 0
        if asked.stored:
            last, found, unsound = stored_sums(ledger_options(self._work), asked.scope, part.shard)
        with closing(reading), closing(Teller(self._work.progress, part.shard)) as teller:
            for page in self._pages(last):
                events += sum(map(state.apply_many, reading.groups(page)))
                teller.reached(page[-1].position)
            teller.reached(last, done=True)
        take = self._taker(wanted, expected)
        if take is not None:
            for fold in self._folds:
                for folded in state.rows(fold.projection):
                    take(folded)
        return ShardAnswer(
            shard=part.shard,
            last=last,
            events=events,
            tallies=[(name, tally.rows, tally.hex()) for name, tally in state.tallies().items()],
            rows=[row_fields(folded) for folded in wanted.folded()],
            left_off={name: count for name, count in wanted.left_off.items() if count},
            expected=expected.export() if asked.sums else None,
            found=None if found is None else found.export(),
            unsound=unsound,
            claimed=self.claims.digests(),
            broken=reading.broken,
            lost=reading.lost,
        )

    def _pages(self, last: int) -> Iterator[list[Any]]:
        columns, events = (HEARD, heard_events) if self._heard else (ALL, whole_events)
        return events(batches(self._work, self._part, last, columns))

    def _taker(self, wanted: Rows, expected: Sums) -> Callable[[FoldedRow], Any] | None:
        """Return who takes each row, if anybody wants rows at all."""
        asked = self._work.asked
        if asked.places is not None:
            places = frozenset(asked.places)

            def suspect(folded: FoldedRow) -> None:
                if (folded.key.projection, bucket(folded.key.row_id)) in places:
                    wanted.add(folded)

            return suspect
        if asked.sums:
            return expected.add
        return wanted.add if asked.projections else None

    def _claiming(self, fold: Fold) -> Fold:
        return replace(fold, key=lambda event: self.claims.noted(fold.projection, fold.key(event)))


class FieldsReading:
    """What a single process does by `FieldsReader` and `Witness`, without an event loop of its own."""

    def __init__(self, work: BulkWork, shard: int, *, watched: bool) -> None:
        """Take the whole work and the shard; a comparison is watched."""
        url = ledger_options(work).payloads_url
        store = open_store(url) if url else None
        self._erased = work.asked.erased
        stopped = [one for one in work.asked.stopped if one.shard == shard]
        self._reader = FieldsReader(store, self._is_erased, stopped=stopped)
        self._witness = Witness(store) if watched and store is not None else None
        self._runner = asyncio.Runner()

    @property
    def broken(self) -> list[BrokenStream]:
        """The streams with fields that cannot be read."""
        return self._reader.broken

    @property
    def lost(self) -> list[Lost]:
        """The fields that folds did not get."""
        return [] if self._witness is None else self._witness.lost

    def watching(self, folds: tuple[Fold, ...]) -> tuple[Fold, ...]:
        """Return the folds, watched where that is asked for."""
        return folds if self._witness is None else self._witness.folds(folds)

    def groups(self, page: list[Any]) -> Iterator[list[Any]]:
        """Give the events of a page that can be folded, in groups that memory has room for."""
        if not any(map(self._reader.has_work, page)):
            yield page
            return
        for group in self._reader.divided(page):
            if self._witness is not None:
                self._runner.run(self._witness.expect(group))
            read = self._runner.run(self._reader.read(group))
            if self._witness is not None:
                self._witness.check(read)
            yield read

    def close(self) -> None:
        """Read no more."""
        self._runner.close()

    async def _is_erased(self, _tenant_id: str) -> bool:
        return self._erased


# One statement, so one moment: the rows are those that the checkpoint speaks of. Rows of a shard there is not, which no
# projector wrote, are counted with the first.
_ROWS: Final = f"""
SELECT c.position AS checkpoint, p.tenant_id, p.organization_id, p.projection, p.row_id, p.execution_id,
       p.shard::integer AS shard, p.first_position, p.last_position, p.fold_version, p.checksum, p.state::text AS state
FROM noetl.projection_checkpoint AS c LEFT JOIN noetl.projection AS p
  ON (p.shard = c.shard OR (c.shard = 0 AND p.shard NOT BETWEEN 0 AND {SHARD_COUNT - 1}))
 AND p.tenant_id = {given(0, "text")} AND p.organization_id = {given(1, "text")}
WHERE c.shard = {given(2, "smallint")}
"""  # noqa: S608 - values are bound


def stored_sums(options: SourceOptions, scope: Scope, shard: int) -> tuple[int, Sums, int]:
    """Return the checkpoint of a shard, the sums of its stored rows, and how many are not what their checksum says."""
    sums, unsound, checkpoint = Sums(), 0, 0
    with transaction(options) as reading:
        for batch in reading.batches(_ROWS, (scope.tenant_id, scope.organization_id, shard)):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                checkpoint = row[0]
                if row[4] is not None and not _summed(sums, *row[1:]):
                    unsound += 1
    return checkpoint, sums, unsound


def _summed(
    sums: Sums, tenant_id: str, organization_id: str, projection: str, row_id: str, execution_id: int, shard: int,
    first: int, last: int, version: int, checksum: str, state: str,
) -> bool:  # fmt: skip
    number = text_number((tenant_id, organization_id, projection, row_id), version, state.encode())
    sums.count(projection, row_id, number, (execution_id, shard, first, last))
    return f"{number:064x}" == checksum
