"""Reads the fields of one shard's events in an executor: pages go in, groups of events that folds may see come out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from noetl.model.broken_stream import BrokenStream
from noetl.payloads.fields import FieldsReader
from noetl.project.folds.fold import Fold
from noetl.project.witness import Lost, Witness
from noetl.spark.bulk_replay.reading import ledger_options
from noetl.spark.bulk_replay.work import BulkWork
from noetl.spark.source.stores import open_store


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
