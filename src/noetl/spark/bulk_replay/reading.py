"""Reads one shard of one organization in the order of its positions: from files of the lake, then from the ledger.

Scope is demanded of every row, wherever it comes from, beside what the database and the lake's paths hold to.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from noetl.spark.bulk_replay.lake_reading import ShardFiles
from noetl.spark.bulk_replay.work import BulkWork, ShardPart
from noetl.spark.source.options import SourceOptions, source_options
from noetl.spark.source.planning import Range
from noetl.spark.source.reading import Reading


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
