"""Plans what to read from the heads of the shards alone: marks go in, ranges of positions and groups of them come out.

Nothing here looks at events: positions are dense and in commit order, so a range up to a head never changes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noetl.errors import Conflict
from noetl.model.mark import MAX_POSITION, Mark
from noetl.spark.source.connections import transaction
from noetl.spark.source.options import SourceOptions

_HEADS = "SELECT shard::bigint AS shard, position FROM noetl.shard ORDER BY shard"


@dataclass(frozen=True)
class Range:
    """Positions of one shard, both bounds included."""

    shard: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many positions it has."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Executions:
    """The events of some executions between two marks, in whichever shards they are."""

    ids: tuple[int, ...]
    start: Mark
    end: Mark


Place = Range | Executions
"""What one statement reads."""


def head(options: SourceOptions) -> Mark:
    """Return the last position given out in each shard; everything up to it is committed and can be seen."""
    with transaction(options) as reading:
        return Mark([row["position"] for row in reading.rows(_HEADS)])


def ranges(shards: Iterable[int], start: Mark, end: Mark, first: int = 1, last: int = MAX_POSITION) -> list[Range]:
    """Return what stands after one mark and not after another, in some shards and between two positions."""
    bounds = ((shard, max(start.positions[shard] + 1, first), min(end.positions[shard], last)) for shard in shards)
    return [Range(shard, begins, ends) for shard, begins, ends in bounds if begins <= ends]


def before(mark: Mark, bound: Mark) -> Mark:
    """Return the mark, taken back to the bound in each shard where it is further."""
    mark.covers(bound)  # refuses a bound of another number of shards
    return Mark([min(pair) for pair in zip(mark.positions, bound.positions, strict=True)])


def check_reached(what: str, mark: Mark, head: Mark) -> None:
    """Refuse a mark that the ledger has not come to: what follows would be read short, or skipped later on."""
    if head.covers(mark):
        return
    shard = next(
        shard for shard, pair in enumerate(zip(mark.positions, head.positions, strict=True)) if pair[0] > pair[1]
    )
    raise Conflict(
        f"{what} is at position {mark.positions[shard]} of shard {shard}, and this ledger has come to "
        f"{head.positions[shard]}: it belongs to another ledger, or this one was restored from a backup or is a replica "
        "that is behind; take a mark from this ledger, and start a streaming query with a new checkpoint"
    )


def admitted(shards: Iterable[int], start: Mark, end: Mark, most: int) -> Mark:
    """Return how far a batch of at most so many positions comes: an equal share of each shard that has news.

    A shard that is far behind takes what the others leave over, and none is kept waiting by another.
    """
    waiting = {found.shard: found.size for found in ranges(shards, start, end)}
    positions, left = list(start.positions), most
    by_size = sorted(waiting, key=lambda shard: (waiting[shard], shard))
    for place, shard in enumerate(by_size):
        # At least one, so that a batch smaller than the number of shards gets on as well.
        share = min(waiting[shard], max(left // (len(by_size) - place), min(left, 1)))
        positions[shard] += share
        left -= share
    return Mark(positions)


def grouped(found: Iterable[Range], most: int) -> list[tuple[Range, ...]]:
    """Cut ranges to at most so many positions and put small ones together, so that tasks are alike in size."""
    groups: list[tuple[Range, ...]] = []
    group: list[Range] = []
    size = 0
    for piece in _cut(found, most):
        if group and size + piece.size > most:
            groups.append(tuple(group))
            group, size = [], 0
        group.append(piece)
        size += piece.size
    return [*groups, tuple(group)] if group else groups


def _cut(found: Iterable[Range], most: int) -> Sequence[Range]:
    return [
        Range(whole.shard, first, min(first + most - 1, whole.last))
        for whole in found
        for first in range(whole.first, whole.last + 1, most)
    ]
