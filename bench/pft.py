"""The PFT workload as a playbook beside the same work as a bare script, in one run on one database.

`python -m bench pft --facilities 1 --patients 100` measures other sizes than the whole workload of 10 × 1000.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace

from examples.pft.make_variants import FRAME_COMMIT, ROW_COMMIT
from examples.pft.records import expected

from bench.figure import Figure
from bench.pft_arena import Arena, Ours, arena
from bench.pft_floor import Sizes

NAMES = (
    "pft.wall",
    "pft.frame_commit",
    "pft.events_per_frame",
    "pft.claims_per_frame",
    "pft.memory_mb",
    "pft.growth",
)
NEEDS = {"pft.wall": {"row", "floor"}, "pft.frame_commit": {"frame", "floor"}, "pft.growth": {"row", "tenth"}}
"""The runs a figure is made of; where nothing stands, the playbook that commits each row."""


@dataclass(frozen=True)
class Options:
    """How much is measured and how often."""

    sizes: Sizes = field(default_factory=Sizes)
    rounds: int = 3


DEFAULTS = Options()


async def figures(wanted: Collection[str], options: Options = DEFAULTS) -> list[Figure]:
    """Measure the named figures; what several of them need is run once a round."""
    needed = {run for name in wanted for run in NEEDS.get(name, {"row"})}
    async with arena() as testbed:
        measured = await _Runs(testbed, options).measure(needed)
    return [measured.figure(name) for name in wanted]


class _Runs:
    """All runs of a measurement, in rounds that change who goes first."""

    def __init__(self, testbed: Arena, options: Options) -> None:
        self._testbed, self._options = testbed, options
        self._sizes, self._tenth = options.sizes, tenth(options.sizes)
        self._seconds: dict[str, list[float]] = {}
        self._rows: list[Ours] = []

    async def measure(self, needed: Collection[str]) -> _Runs:
        """Run each kind once a round."""
        kinds: dict[str, Callable[[], Awaitable[float]]] = {
            "floor": self._floor,
            "row": self._row,
            "frame": self._frame,
            "tenth": self._one_tenth,
        }
        order = [kind for kind in kinds if kind in needed]
        for number in range(self._options.rounds):
            turn = number % len(order)
            for kind in order[turn:] + order[:turn]:
                self._seconds.setdefault(kind, []).append(await kinds[kind]())
        return self

    async def _floor(self) -> float:
        return (await self._testbed.floor(self._sizes)).seconds

    async def _row(self) -> float:
        run = await self._testbed.ours(ROW_COMMIT, self._sizes)
        self._rows.append(run)
        return run.seconds

    async def _frame(self) -> float:
        return (await self._testbed.ours(FRAME_COMMIT, self._sizes)).seconds

    async def _one_tenth(self) -> float:
        return (await self._testbed.ours(ROW_COMMIT, self._tenth)).seconds

    def figure(self, name: str) -> Figure:
        """Make a figure of what was measured."""
        made = {
            "pft.wall": lambda: Figure.ratio(name, self._median("row"), self._median("floor"), "s", 1.5, "less"),
            "pft.frame_commit": lambda: Figure.ratio(
                name, self._median("frame"), self._median("floor"), "s", 0.7, "less"
            ),
            "pft.events_per_frame": lambda: Figure.plain(
                name, max(run.frame_events / run.frames for run in self._rows), "events", 2.2, "less"
            ),
            "pft.claims_per_frame": lambda: Figure.plain(
                name, max(run.claims / run.frames for run in self._rows), "claims", 1.1, "less"
            ),
            "pft.memory_mb": lambda: Figure.plain(name, max(run.megabytes for run in self._rows), "MB", 500.0, "less"),
            "pft.growth": lambda: Figure.ratio(
                name, self._per_row("row", self._sizes), self._per_row("tenth", self._tenth), "ms/row", 1.05, "less"
            ),
        }
        return made[name]()

    def _median(self, kind: str) -> float:
        return statistics.median(self._seconds[kind])

    def _per_row(self, kind: str, sizes: Sizes) -> float:
        return 1000 * self._median(kind) / expected(sizes.facilities, sizes.patients, "s3").requests


def tenth(sizes: Sizes) -> Sizes:
    """Return sizes with a tenth of the rows: of the facilities, or of each one's patients where there are few."""
    if sizes.facilities >= 10:
        return replace(sizes, facilities=sizes.facilities // 10)
    return replace(sizes, patients=max(1, sizes.patients // 10))
