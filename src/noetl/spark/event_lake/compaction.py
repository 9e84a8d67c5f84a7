"""Small files of a day become few large ones with the same rows, so that manifests stay small. One commit per day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.errors import Corrupt
from noetl.faults import reach
from noetl.model.dataset import FileEntry
from noetl.model.task import PartitionWrite
from noetl.spark.drivers.programs import Call
from noetl.spark.event_lake.definition import JOB, next_state
from noetl.spark.event_lake.files import SETTINGS, with_few_statistics
from noetl.spark.event_lake.worker_requests import Attempt, Desk
from noetl.spark.lake.reader import files_frame
from noetl.spark.lake.storage import Lake
from noetl.spark.lake.writer import write_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIER: Final = 16
_SMALLEST_BYTES: Final = 1 << 20


class CompactArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the program is told."""

    target_bytes: int


def compact(session: SparkSession, call: Call) -> dict[str, Any]:
    """Put the small files of every day together; return how many files there were and are."""
    told = msgspec.convert(call.arguments, CompactArguments)
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    desk = Desk(call.ask)
    before = after = days = 0
    for key in sorted(desk.stored(JOB).files):
        if call.should_stop():
            break
        day = Day(session, call.lake, desk, key, told.target_bytes)
        left = day.rewritten(small_files(day.files, told.target_bytes))
        before, after, days = before + len(day.files), after + left, days + (left != len(day.files))
        desk.tell(partition=key, files=len(day.files), left=left)
    return {"days": days, "files": before, "left": after}


def small_files(files: Sequence[FileEntry], target_bytes: int) -> list[FileEntry]:
    """Return the files that are to become larger ones: those far below the target, if there are several."""
    small = [entry for entry in files if entry.bytes < target_bytes // 2]
    return small if len(small) > 1 else []


def crowded_files(files: Sequence[FileEntry], target_bytes: int, most: int) -> list[FileEntry]:
    """Return files of like size to put together where there are too many: each row is rewritten a few times only."""
    tiers: dict[int, list[FileEntry]] = {}
    for entry in small_files(files, target_bytes):
        tier = max(0, math.ceil(math.log(max(1, entry.bytes) / _SMALLEST_BYTES, _TIER)))
        tiers.setdefault(tier, []).append(entry)
    full = [tier for tier, found in tiers.items() if len(found) >= most]
    return [entry for tier, found in tiers.items() if full and tier <= max(full) for entry in found]


class Day:
    """One day of the lake, as it stands when this is made."""

    def __init__(self, session: SparkSession, lake: Lake, desk: Desk, key: str, target_bytes: int) -> None:
        self._session = session
        self._lake = lake
        self._desk = desk
        self._key = key
        self._target_bytes = target_bytes
        self._stored = desk.stored(JOB, [key])
        self.files = self._stored.files[key]

    def rewritten(self, chosen: Sequence[FileEntry]) -> int:
        """Write chosen files anew as few and commit that, unless something else was; return how many files are left."""
        if not chosen:
            return len(self.files)
        attempt = self._desk.begin(JOB, f"compact {self._key} {chosen[0].sha256[:16]} {self._stored.state['commits']}")
        if attempt.state != self._stored.state:
            self._desk.give_up(attempt, "the lake moved on before it began")
            return len(self.files)
        write = self._written(attempt, chosen)
        gone = {entry.path for entry in chosen}
        files = (*(entry for entry in self.files if entry.path not in gone), *write.files)
        metrics = {"files": len(self.files), "left": len(files)}
        whole = msgspec.structs.replace(write, files=files)
        reach("lake.before_compacted")
        self._desk.commit(attempt, [whole], next_state(attempt.state), metrics=metrics, rewrites=True)
        return len(files)

    def _written(self, attempt: Attempt, chosen: Sequence[FileEntry]) -> PartitionWrite:
        rows = files_frame(self._session, self._stored.columns, [(entry, 0) for entry in chosen], self._lake)
        parts = max(1, round(sum(entry.bytes for entry in chosen) / self._target_bytes))
        ordered = rows.coalesce(parts).sortWithinPartitions("shard", "position")
        (write,) = write_output(ordered, attempt.target, attempt.place(self._key), self._lake, types={})
        if sum(entry.rows for entry in write.files) != sum(entry.rows for entry in chosen):
            raise Corrupt(f"the files of {self._key} do not have the rows that their manifest says")
        return with_few_statistics(write)
