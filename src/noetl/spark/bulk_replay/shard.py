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
from noetl.project.folds.fold import Fold, FoldedRow
from noetl.project.folds.state import FoldState
from noetl.project.folds.sums import Sums, bucket
from noetl.project.folds.wanted import Rows
from noetl.project.garbage import seldom_searched
from noetl.project.upcast import Upcasters
from noetl.spark.bulk_replay.claims import Claims
from noetl.spark.bulk_replay.decoding import ALL, HEARD, heard_events, whole_events
from noetl.spark.bulk_replay.fields import FieldsReading
from noetl.spark.bulk_replay.progress import Teller
from noetl.spark.bulk_replay.reading import batches, ledger_options
from noetl.spark.bulk_replay.shipping import is_ours, unpacked
from noetl.spark.bulk_replay.stored import stored_sums
from noetl.spark.bulk_replay.work import BulkWork, Failure, ShardAnswer, ShardPart, row_fields

if TYPE_CHECKING:
    import pyarrow

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
