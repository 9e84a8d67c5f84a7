"""What programs over the event lake ask of their worker, which has the ledger: attempts begun and committed, files named.

The same for the events and for every dataset of facts: `job` names the job whose dataset is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from noetl.model.dataset import Field, FileEntry
from noetl.model.mark import Mark
from noetl.model.task import PartitionWrite, TaskTarget
from noetl.spark.lake.executor_rows import Place

Ask = Callable[[dict[str, Any]], dict[str, Any]]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at one batch of a job, under a lease that the worker keeps."""

    task_id: str
    attempt: int
    target: TaskTarget
    """Where its files go; `parts` is left out."""
    state: dict[str, Any]
    """What the last commit of the job saved, on which this one builds."""

    def place(self, partition_key: str) -> Place:
        """Return whose files they are, for a partition."""
        return Place(self.task_id, self.attempt, partition_key)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What stands of a dataset: the columns and the files of some partitions."""

    columns: tuple[Field, ...]
    files: dict[str, tuple[FileEntry, ...]]
    """By partition."""
    state: dict[str, Any]
    """What the last commit before had saved: where an attempt is given the same, nothing was committed since."""

    def entries(self) -> list[tuple[FileEntry, int]]:
        """Return all files, as `files_frame` wants them."""
        return [(entry, 0) for entries in self.files.values() for entry in entries]


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch that Spark planned up to a mark should hold."""

    after: str | None
    """From where on rows are missing; None if there is nothing to do."""
    upto: str
    """Up to where it then has them: the batch's own mark, and no less than is in the lake already."""
    day: str | None = None
    """The day of all its events, if they are of one."""


class Desk:
    """Asks the worker."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def next(self, upto: Mark) -> Next:
        """Ask what is missing in the lake up to a mark."""
        return msgspec.convert(self._ask({"ask": "next", "upto": upto.token()}), Next)

    def begin(self, job: str, key: str) -> Attempt:
        """Begin an attempt at a batch of a job; the key names the batch."""
        return msgspec.convert(self._ask({"ask": "begin", "job": job, "key": key}), Attempt)

    def commit(
        self,
        attempt: Attempt,
        writes: Sequence[PartitionWrite],
        state: dict[str, Any],
        *,
        dropped: Sequence[tuple[int, str]] = (),
        metrics: dict[str, Any] | None = None,
        rewrites: bool = False,
    ) -> None:
        """Make what an attempt wrote visible, together with the job's new state; raises Refused if that is too late."""
        self._ask(
            {
                "ask": "commit",
                "task_id": attempt.task_id,
                "writes": msgspec.to_builtins(list(writes)),
                "state": state,
                "dropped": [list(one) for one in dropped],
                "metrics": metrics or {},
                "rewrites": rewrites,
            }
        )

    def give_up(self, attempt: Attempt, error: str) -> None:
        """Tell that nothing came of an attempt."""
        self._ask({"ask": "give_up", "task_id": attempt.task_id, "error": error})

    def state(self, job: str) -> dict[str, Any]:
        """Return what the last commit of a job saved; empty before the first."""
        found: dict[str, Any] = self._ask({"ask": "state", "job": job})["state"]
        return found

    def stored(self, job: str, partitions: Sequence[str] | None = None) -> Stored:
        """Return the files of a job's dataset as they stand now, of some partitions or of all."""
        asked = {"ask": "stored", "job": job, "partitions": None if partitions is None else list(partitions)}
        return msgspec.convert(self._ask(asked), Stored)

    def tell(self, **progress: Any) -> None:
        """Tell how far the program has come."""
        self._ask({"ask": "told", **progress})
