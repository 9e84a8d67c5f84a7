"""Facts follow the lake: days whose events changed go in, their partitions are written anew and committed by the worker.

How far each dataset has come is saved with its files, so whatever is killed, the next refresh takes up what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import InputError
from noetl.model.dataset import ALL, partition_key
from noetl.model.ids import ROOT_ID_LIMIT, snowflake_at
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite
from noetl.spark.drivers.programs import Call
from noetl.spark.event_lake.definition import JOB, day_of, mark_of, next_state, partition_of
from noetl.spark.event_lake.facts.catalogue import FACTS
from noetl.spark.event_lake.facts.fact import DAY, Fact
from noetl.spark.event_lake.worker_requests import Attempt, Desk, Stored
from noetl.spark.lake.reader import files_frame
from noetl.spark.lake.storage import Lake
from noetl.spark.lake.writer import own_session_settings, write_output
from noetl.spark.session.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noetl.spark.event_lake.facts.parsed_events import DAY_OF_EVENT, parsed_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


PART_BYTES: Final = 16 << 20
"""Bytes of the lake's files that one part of the work holds; they are several times as large when they are read."""
MOST_PARTS: Final = 400
_A_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class _Behind:
    """A dataset that has to be brought up to date."""

    fact: Fact
    state: dict[str, Any]
    after: Mark
    first_day: date | None
    """The first day of the lake that can hold what it lacks; None if it lacks all."""


class Refreshing:
    """One refresh of the facts of one organization."""

    def __init__(self, session: SparkSession, lake: Lake, desk: Desk, scope: Scope, lake_name: str) -> None:
        self._session = session
        self._lake = lake
        self._desk = desk
        self._scope = scope
        self._lake_name = lake_name

    @classmethod
    def of(cls, session: SparkSession, call: Call, scope: Scope) -> Refreshing:
        """Return the refresh of a program that writes the lake.

        The lake is named as it is now: one that was dropped, or built anew, has other rows to make facts of.
        """
        lake_name = f"{call.arguments['generation']}-{call.arguments.get('epoch', 0)}"
        return cls(session, call.lake, Desk(call.ask), scope, lake_name)

    def run(self, days: Sequence[str]) -> dict[str, int]:
        """Write and commit what changed; return how many rows were written of each dataset."""
        upto = mark_of(self._desk.state(JOB))
        behind = [found for found in map(self._looked_up, FACTS) if not found.after.covers(upto)]
        if not behind:
            return {}
        began = time.perf_counter()
        first = None if any(one.first_day is None for one in behind) else _earliest(behind, days)
        stored = self._stored(first)
        touched = self._touched(stored, _common([one.after for one in behind]))
        if not touched:
            return {}
        if first is not None and touched[0] - _A_DAY < first:
            stored = self._stored(touched[0] - _A_DAY)
        last = max(map(day_of, stored.files))
        written: dict[str, int] = {}
        with facts_of(self._events(stored, touched), touched) as made:
            for one in behind:
                written[one.fact.name] = self._replace(one, made[one.fact.name], touched, upto, last, began)
                began = time.perf_counter()
        return written

    def _looked_up(self, fact: Fact) -> _Behind:
        state = self._desk.state(fact.name)
        if state.get("lake") != self._lake_name:
            return _Behind(fact, state, Mark.zero(), None)
        return _Behind(fact, state, mark_of(state), date.fromisoformat(state["day"]))

    def _stored(self, first: date | None) -> Stored:
        """Return the lake's files of a day and all that follow; a day before is looked at for clocks that differ."""
        if first is None:
            return self._desk.stored(JOB)
        last = datetime.now(UTC).date() + _A_DAY
        days = [first - _A_DAY + _A_DAY * count for count in range((last - first).days + 2)]
        return self._desk.stored(JOB, [partition_of(self._scope, day.isoformat()) for day in days])

    def _touched(self, stored: Stored, after: Mark) -> list[date]:
        rows = self._frame(stored)
        known = ", ".join(f"{position}L" for position in after.positions)
        return touched_days(rows.filter(f"position > element_at(array({known}), shard + 1)"))

    def _events(self, stored: Stored, touched: Sequence[date]) -> DataFrame:
        low, high = _first_id(touched[0]), _first_id(touched[-1] + _A_DAY)
        # Told a second time by bounds of ids, which files have statistics of.
        return self._frame(stored).filter(
            f"execution_id < {ROOT_ID_LIMIT} OR (execution_id >= {low} AND execution_id < {high})"
        )

    def _frame(self, stored: Stored) -> DataFrame:
        size = sum(entry.bytes for entry, _ in stored.entries())
        parts = {"spark.sql.shuffle.partitions": str(max(1, min(MOST_PARTS, size // PART_BYTES)))}
        own = new_session(self._session, {**own_session_settings(), **SETTINGS, **parts}, "facts")
        return files_frame(own, stored.columns, stored.entries(), self._lake)

    def _replace(
        self, one: _Behind, rows: DataFrame, touched: Sequence[date], upto: Mark, last: str, began: float
    ) -> int:
        commits = one.state.get("commits", 0)
        attempt = self._desk.begin(one.fact.name, f"{self._lake_name} {upto.token()} {commits}")
        if attempt.state != one.state:
            self._desk.give_up(attempt, "the facts moved on before it began")
            raise InputError(f"another process refreshes {one.fact.name}", hint="let it end, then try again")
        writes = self._written(attempt, rows, touched)
        gone = [] if one.first_day is not None else self._left_over(one.fact, writes)
        count = sum(entry.rows for write in writes for entry in write.files)
        size = sum(entry.bytes for write in writes for entry in write.files)
        state = next_state(attempt.state, mark=upto.token(), lake=self._lake_name, day=last)
        seconds = round(time.perf_counter() - began, 3)
        self._desk.commit(
            attempt, writes, state, dropped=gone, metrics={"rows": count, "bytes": size, "seconds": seconds}
        )
        return count

    def _written(self, attempt: Attempt, rows: DataFrame, touched: Sequence[date]) -> list[PartitionWrite]:
        key = partition_key((DAY,), {DAY: touched[0].isoformat()}) if len(touched) == 1 else ALL
        writes = write_output(rows, attempt.target, attempt.place(key), self._lake, types={})
        return [write for write in writes if write.files]

    def _left_over(self, fact: Fact, writes: Iterable[PartitionWrite]) -> list[tuple[int, str]]:
        """Return the days of a dataset that is made anew which have no facts any more."""
        written = {write.partition_key for write in writes}
        return [(0, key) for key in self._desk.stored(fact.name).files if key not in written]


def _earliest(behind: Iterable[_Behind], days: Iterable[str]) -> date:
    return min([*(one.first_day for one in behind if one.first_day is not None), *map(date.fromisoformat, days)])


def _common(marks: Sequence[Mark]) -> Mark:
    """Return the last mark that all of them cover."""
    return Mark([min(positions) for positions in zip(*(mark.positions for mark in marks), strict=True)])


def _first_id(day: date) -> int:
    return snowflake_at(datetime(day.year, day.month, day.day, tzinfo=UTC))


_SOURCE: Final = "noetl_facts_source"
_READ_AGAIN: Final = ("noetl_executions", "noetl_frames", "noetl_tasks", "noetl_attempts", "noetl_metrics")
"""Facts that others are made of."""
SETTINGS: Final = {
    # The events are laid out by execution once, and nearly all that follows stays where it is: plans must not be
    # changed underway, nor small sides be sent around, each of which is a Spark job of its own.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
}
"""What a session for facts is set to, besides the number of parts (`spark.sql.shuffle.partitions`)."""


def touched_days(events: DataFrame) -> list[date]:
    """Return the days whose facts these events change."""
    return sorted(row[0] for row in events.selectExpr(f"{DAY_OF_EVENT} AS day").distinct().collect())


@contextmanager
def facts_of(events: DataFrame, days: Collection[date]) -> Iterator[dict[str, DataFrame]]:
    """Give the facts of some days by their names, from events that hold those days whole; they last for the block.

    The events must be of a session with `SETTINGS` that is nobody else's: the views are made there.
    """
    session = events.sparkSession
    wanted = ", ".join(f"DATE '{day.isoformat()}'" for day in sorted(days))
    events.createOrReplaceTempView(_SOURCE)
    parsed = session.sql(f"SELECT * FROM ({parsed_events(_SOURCE)}) WHERE day IN ({wanted})")  # noqa: S608 - ours
    _kept(parsed.repartition("execution_id")).createOrReplaceTempView("e")
    made: dict[str, DataFrame] = {}
    try:
        for fact in FACTS:
            rows = session.sql(fact.select)
            made[fact.name] = _kept(rows) if fact.name in _READ_AGAIN else rows
            made[fact.name].createOrReplaceTempView(fact.name)
        yield made
    finally:
        for name in (_SOURCE, "e", *made):
            session.catalog.dropTempView(name)


def _kept(rows: DataFrame) -> DataFrame:
    """Return rows that are computed once, whose plan nobody has to look at again; Spark lets go of what nobody reads."""
    return rows.localCheckpoint(eager=False)
