"""What deciding about tasks is about: a job, what stands behind its inputs, and the tasks it wants. Values only.

Also which of a job's inputs are consumed bit by bit, and how far: one rule for wanting a task and for its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

Cursors = Mapping[tuple[str, str], int]
"""For a generation and a partition of an input, the version up to which its rows are consumed."""
NO_CURSORS: Final[Cursors] = {}


class InputOf(msgspec.Struct, frozen=True, kw_only=True):
    """An input as its job declares it, with the partition columns of the dataset behind it."""

    alias: str
    dataset_uuid: str
    trigger: bool = True
    partition_by: tuple[str, ...] = ()


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """What of a job decides about its tasks."""

    generation: str
    job_hash: str
    inputs: tuple[InputOf, ...] = ()
    partition_by: tuple[str, ...] = ()
    wait: Literal["any", "all"] = "any"
    strategy: Literal["PerUpdate", "PerPartition"] | None = None

    def carried_by(self, one: InputOf) -> bool:
        """Tell whether each partition of an input belongs to one partition of the job."""
        return bool(self.partition_by) and set(self.partition_by) <= set(one.partition_by)

    @property
    def is_split(self) -> bool:
        """Whether the job is worked by partition; otherwise one task reads all, and its rows are split by value.

        Partitions that are only read do not count: a new one of those starts nothing and would be left out.
        """
        return any(one.trigger and self.carried_by(one) for one in self.inputs)

    @property
    def incremental(self) -> frozenset[str]:
        """The aliases of which only the news are read.

        Beside inputs that are partitioned like the job, one that is not is looked up whole: each of its versions
        belongs to every partition of the job, so that no cursor could tell what is consumed.
        """
        if self.strategy != "PerUpdate":
            return frozenset()
        split = self.is_split
        return frozenset(one.alias for one in self.inputs if one.trigger and (not split or self.carried_by(one)))


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as it stands now."""

    partition_key: str
    version: int
    content_digest: str
    dropped: bool = False
    """It was there once; whatever was made of it is to be made again without it."""


class InputView(msgspec.Struct, frozen=True, kw_only=True):
    """What stands behind an input: the generation that is read, and its partitions."""

    dataset_version: str
    parts: tuple[PartView, ...] = ()


class WantedInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a task reads of one input: partition, version, and the version consumed before (0: all of it)."""

    alias: str
    dataset_uuid: str
    dataset_version: str
    parts: tuple[tuple[str, int, int], ...] = ()


class WantedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that should exist."""

    task_id: str
    partition_key: str
    dedupe_key: str
    memo_key: str
    inputs: tuple[WantedInput, ...] = ()


def consumed(job: JobView, inputs: Iterable[WantedInput]) -> list[tuple[str, str, str, int]]:
    """Return the cursors that a finished task moves: dataset, generation, partition, version."""
    news = job.incremental
    return sorted(
        (one.dataset_uuid, one.dataset_version, key, version)
        for one in inputs
        if one.alias in news
        for key, version, _ in one.parts
    )


def given(job: JobView, cursors: Cursors, tasks: Iterable[Iterable[WantedInput]]) -> dict[tuple[str, str], int]:
    """Return the cursors as they will be once tasks under way are done, so that no version is given to two of them."""
    found = dict(cursors)
    for inputs in tasks:
        for _, generation, key, version in consumed(job, inputs):
            found[generation, key] = max(version, found.get((generation, key), 0))
    return found
