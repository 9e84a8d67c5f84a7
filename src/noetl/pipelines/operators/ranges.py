"""Ranges as partitions: an ordered cursor is cut into full half-open ranges, and ranges into smaller ones.

Both write rows of `start`, `end` and `range` (the text `start-end`), partitioned by `range`, so that a job downstream
that is partitioned by `range` gets one task for each. Both are a pure function of what they read, so a retry gives the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from noetl.model.lineage import Kind, Lineage, lineage_of
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.worker.in_process import OperatorFailed, Produced
from noetl.spark.drivers.protocol import Work

_SCHEMA = pa.schema([("range", pa.string()), ("start", pa.int64()), ("end", pa.int64())])


class RangeAggregator:
    """Cuts what is new of an ordered column into ranges of `range_size`; what is left over waits for more.

    Config: `cursor_column`, `range_size`, `start` (default 0).
    """

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Emit every full range up to the greatest value seen."""
        config = work.grant.config
        column, size = str(config["cursor_column"]), int(config["range_size"])
        begin = int(work.grant.operator_state.get("next_start", config.get("start", 0)))
        reached = begin
        for one in work.grant.inputs:
            greatest = await self._reader.greatest(work, one, column)
            if greatest is None:
                continue
            if not isinstance(greatest, int):
                raise OperatorFailed(f"column {column!r} of {one.alias} is no whole number", retryable=False)
            reached = max(reached, greatest + 1)
        rows = [(at, at + size) for at in range(begin, begin + (reached - begin) // size * size, size)]
        following = rows[-1][1] if rows else begin
        lineage = range_lineage({one.alias: (column,) for one in work.grant.inputs}, "aggregated")
        return Produced(
            tables={0: ranges(rows)}, state={"next_start": following, "seen": reached}, lineage={0: lineage}
        )


class RangeSplitter:
    """Cuts each range that comes in into ranges of `chunk_size`."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Emit the parts of every range read."""
        size = int(work.grant.config["chunk_size"])
        rows: set[tuple[int, int]] = set()
        for one in work.grant.inputs:
            table = await self._reader.read(work, one)
            if not {"start", "end"} <= set(table.column_names):
                raise OperatorFailed(f"input {one.alias} has no columns start and end", retryable=False)
            for start, end in zip(table.column("start").to_pylist(), table.column("end").to_pylist(), strict=True):
                rows.update((at, min(at + size, end)) for at in range(start, end, size))
        lineage = range_lineage({one.alias: ("start", "end") for one in work.grant.inputs}, "transformed")
        return Produced(tables={0: ranges(sorted(rows))}, lineage={0: lineage})


def range_lineage(read: Mapping[str, Sequence[str]], kind: Kind) -> Lineage:
    """Return where ranges come from: all their columns from the same ones of the inputs."""
    origins: dict[tuple[str | None, str | None], Kind] = {
        (alias, column): kind for alias, columns in read.items() for column in columns
    }
    return lineage_of("operator", dict.fromkeys(_SCHEMA.names, origins))


def ranges(rows: list[tuple[int, int]]) -> pa.Table:
    """Return ranges as a table."""
    named = [(f"{start}-{end}", start, end) for start, end in rows]
    return (
        pa.table(
            [pa.array(column, kind.type) for column, kind in zip(zip(*named, strict=True), _SCHEMA, strict=True)],
            schema=_SCHEMA,
        )
        if named
        else _SCHEMA.empty_table()
    )
