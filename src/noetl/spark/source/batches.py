"""Reads places of the ledger as Arrow batches, in the order of positions and in their newest schema. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from noetl.spark.source.columns import ARROW_SCHEMA, NAMES
from noetl.spark.source.connections import transaction
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.ranges import Place, Range
from noetl.spark.source.statement import Condition, asked, meets, reading, unless_old
from noetl.spark.source.upcasters import SourceUpcasters, current, loaded

_LOCK: Final = "LOCK TABLE ONLY noetl.event IN ACCESS SHARE MODE"
_SCHEMA_COLUMNS: Final = ("schema_name", "schema_version")


def read_batches(options: Mapping[str, str], shard: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Give the events of a shard from one position to another, both included, as batches of `ARROW_SCHEMA`."""
    yield from Reading(SourceOptions.parse(options)).batches([Range(shard, first, last)])


@dataclass(frozen=True)
class Reading:
    """What every task is told: the options, what to ask PostgreSQL beyond them, and the columns to give."""

    options: SourceOptions
    filters: tuple[Condition, ...] = ()
    columns: tuple[str, ...] = NAMES

    def batches(self, places: Sequence[Place]) -> Iterator[pa.RecordBatch]:
        """Give the events of some places."""
        from noetl.spark.source.archived import parted, read_archived

        upcasters = _loaded(self.options.upcasters)
        with transaction(self.options) as opened:
            # Under this lock no partition is dropped, so what no archive has now is in the tables until the end.
            opened.run(_LOCK)
            live, gone = parted(opened, self.options, places)
            for place in live:
                statement, values = self._statement(place, upcasters)
                for batch in opened.batches(statement, values):
                    yield from self._given(batch, upcasters)
        for place in gone:
            for batch in read_archived(self.options, place, upcasters):
                yield batch.select(self.columns)

    def _statement(self, place: Place, upcasters: SourceUpcasters) -> tuple[str, list[object]]:
        conditions = [*asked(self.options), *self.filters]
        if upcasters.old:
            conditions = [unless_old(condition, upcasters.old) for condition in conditions]
        return reading(self.options, place, conditions, self._read_columns(upcasters))

    def _given(self, batch: pa.RecordBatch, upcasters: SourceUpcasters) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        schema = pa.schema([ARROW_SCHEMA.field(name) for name in self._read_columns(upcasters)])
        typed = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        newest = current(typed, upcasters, meets(self.options))
        if newest.num_rows:
            yield newest.select(self.columns)

    def _read_columns(self, upcasters: SourceUpcasters) -> tuple[str, ...]:
        """Return what to fetch: all of a row where it may be upcast, and else its schema beside what is asked for."""
        if upcasters.old:
            return NAMES
        return (*self.columns, *(name for name in _SCHEMA_COLUMNS if name not in self.columns))


@lru_cache(16)
def _loaded(names: tuple[str, ...]) -> SourceUpcasters:
    return loaded(names)
