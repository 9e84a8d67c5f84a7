"""Batches of the event lake: what Spark planned up to a mark goes in, files and their commit by the worker come out.

A batch begins where the ledger says that the lake ends, whatever Spark's own checkpoint says: so a batch that is
replayed, or that another process wrote, changes nothing, and none leaves a gap.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from noetl.errors import Conflict, NoetlError
from noetl.faults import reach
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.drivers.programs import Call
from noetl.spark.event_lake.checkpoints import planned_mark
from noetl.spark.event_lake.compaction import Day, crowded_files
from noetl.spark.event_lake.definition import JOB, day_of, next_state, partition_of
from noetl.spark.event_lake.files import first_versions, lake_rows, written
from noetl.spark.event_lake.worker_requests import Desk
from noetl.spark.source.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SyncArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the program is told."""

    tenant: str
    organization: str
    generation: str
    after: str
    """How far the lake has come, as a mark."""
    upto: str | None
    """Up to which mark it is brought; None follows the ledger until the program is asked to stop."""
    trigger_seconds: float
    batch_events: int
    partition_events: int
    epoch: int = 0
    """How often the lake was dropped: a checkpoint from before says nothing about what comes after."""
    target_bytes: int
    compact_files: int
    """After how many files of a day small ones are put together."""
    checkpoint: str | None = None
    facts_seconds: float | None = None
    """How often facts are refreshed while it follows; None leaves them alone."""

    @property
    def scope(self) -> Scope:
        """Whose lake it is."""
        return Scope(self.tenant, self.organization)


class Batches:
    """Writes batches one after another; what goes wrong in one is kept, since Spark tells it in its own words."""

    def __init__(self, session: SparkSession, call: Call, told: SyncArguments, address: str) -> None:
        self._session = session
        self._call = call
        self._told = told
        self._address = address
        self._desk = Desk(call.ask)
        self._under_way = threading.Lock()
        self.ended = False
        self._written_days: set[str] = set()
        self._uncounted = 0
        self.options = source_options(told.scope, call.reach, partition_events=str(told.partition_events))
        self.committed = 0
        self.days: set[str] = set()
        self.rows = 0
        self.mark = told.after
        self.problem: NoetlError | None = None

    def __call__(self, events: DataFrame, batch: int) -> None:
        """Write a batch and have it committed, unless all of it is in the lake or is nothing but its bookkeeping."""
        with self._under_way:
            if self.ended:
                # Not left out in silence: Spark's checkpoint would then say that it is done.
                raise Conflict("the program is to end")
            try:
                planned = planned_mark(self._session, self._address, batch)
                assert planned is not None, "Spark plans a batch before it begins"
                self._write(planned, (self._planned_start(batch), planned), events)
                self._compact()
            except NoetlError as problem:
                self.problem = problem
                raise

    def catch_up(self, upto: Mark) -> None:
        """Write what is missing up to a mark although Spark takes it for done, having a checkpoint of other times."""
        self._write(upto, None, None)

    @contextmanager
    def between(self) -> Iterator[None]:
        """Wait for the end of the batch under way, and let none begin from then on."""
        with self._under_way:
            self.ended = True
            yield

    def _write(self, upto: Mark, given: tuple[Mark | None, Mark] | None, events: DataFrame | None) -> None:
        """Write and commit what is missing up to a mark; `given` is the range of the events at hand."""
        wanted = self._desk.next(upto)
        if wanted.after is None:
            return
        after, upto = Mark.parse(wanted.after), Mark.parse(wanted.upto)
        session = self._session if events is None else events.sparkSession
        if events is None or (after, upto) != given:
            options = self.options | {"after": after.token(), "upto": upto.token()}
            events = session.read.format("noetl").options(**options).load()
        attempt = self._desk.begin(JOB, range_key(after, upto, self._told.epoch))
        reach("lake.before_files")
        versions = first_versions(session, self.options, after, upto)
        rows = lake_rows(events, attempt.task_id, upto, versions)
        writes = written(rows, self._told.scope, attempt, self._call.lake, wanted.day)
        reach("lake.after_files")
        count = sum(entry.rows for write in writes for entry in write.files)
        state = next_state(attempt.state, mark=upto.token(), after=after.token())
        metrics = {"after": after.token(), "upto": upto.token(), "rows_written": count}
        reach("lake.before_commit")
        self._desk.commit(attempt, writes, state, metrics=metrics)
        reach("lake.after_commit")
        self.committed += 1
        self.rows += count
        self.mark = upto.token()
        days = {day_of(write.partition_key) for write in writes}
        self.days |= days
        self._written_days |= days
        self._desk.tell(mark=self.mark, rows=count)

    def _compact(self) -> None:
        """Look now and then whether a day has too many small files, and put them together."""
        self._uncounted += 1
        if self._uncounted < max(1, self._told.compact_files // 4):
            return
        self._uncounted = 0
        for day in sorted(self._written_days):
            found = Day(
                self._session, self._call.lake, self._desk, partition_of(self._told.scope, day), self._told.target_bytes
            )
            found.rewritten(crowded_files(found.files, self._told.target_bytes, self._told.compact_files))
        self._written_days.clear()

    def _planned_start(self, batch: int) -> Mark | None:
        """Return where Spark's own rows of a batch begin."""
        before = planned_mark(self._session, self._address, batch - 1) if batch else None
        return before or (Mark.parse(self._told.after) if not batch else None)


def range_key(after: Mark, upto: Mark, epoch: int) -> str:
    """Name a batch by its range of positions; once the lake was dropped, the same range is another batch."""
    return hashlib.sha256(f"{epoch} {after.token()} {upto.token()}".encode()).hexdigest()[:32]
