"""What a benchmark gives: one figure held against its bar, printed as a line of JSON or a row of a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """`value` is what is held against the bar: the ratio of ours to the floor, or a plain number."""

    figure: str
    value: float
    ours: float
    floor: float | None
    unit: str
    bar: float
    holds: bool

    @classmethod
    def ratio(
        cls, name: str, ours: float, floor: float, unit: str, bar: float, better: Literal["more", "less"]
    ) -> Figure:
        """Hold the ratio of ours to the floor against the bar."""
        value = ours / floor
        return cls(name, round(value, 4), round(ours, 4), round(floor, 4), unit, bar, _holds(value, bar, better))

    @classmethod
    def plain(cls, name: str, ours: float, unit: str, bar: float, better: Literal["more", "less"]) -> Figure:
        """Hold a plain number against the bar."""
        return cls(name, round(ours, 4), round(ours, 4), None, unit, bar, _holds(ours, bar, better))

    @classmethod
    def of(
        cls, name: str, value: float, ours: float, floor: float, unit: str, bar: float, better: Literal["more", "less"]
    ) -> Figure:
        """Hold a ratio that was taken round by round against the bar."""
        return cls(name, round(value, 4), round(ours, 4), round(floor, 4), unit, bar, _holds(value, bar, better))

    def line(self) -> str:
        """Return the figure as one line of JSON."""
        return json.dumps(asdict(self))


def _holds(value: float, bar: float, better: Literal["more", "less"]) -> bool:
    return value >= bar if better == "more" else value <= bar


async def alternating(
    ours: Callable[[int], Awaitable[float]], floor: Callable[[int], Awaitable[float]], rounds: int
) -> tuple[float, float]:
    """Run ours and the floor in turn, changing who goes first, and return the median of each."""
    mine: list[float] = []
    bare: list[float] = []
    for number in range(rounds):
        for run, results in ((ours, mine), (floor, bare)) if number % 2 else ((floor, bare), (ours, mine)):
            results.append(await run(number))
    return statistics.median(mine), statistics.median(bare)


async def paired(
    ours: Callable[[int], Awaitable[float]], floor: Callable[[int], Awaitable[float]], rounds: int
) -> tuple[float, float, float]:
    """Run ours and the floor in turn and return the median of each, and the median of the rounds' ratios."""
    mine: list[float] = []
    bare: list[float] = []
    for number in range(rounds):
        for run, results in ((ours, mine), (floor, bare)) if number % 2 else ((floor, bare), (ours, mine)):
            results.append(await run(number))
    ratios = [one / other for one, other in zip(mine, bare, strict=True)]
    return statistics.median(mine), statistics.median(bare), statistics.median(ratios)


def table(figures: Sequence[Figure]) -> None:
    """Print figures for a person."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("figure", "value", "bar", "ours", "floor", "unit", "holds")
    for each in figures:
        shown.add_row(
            each.figure,
            f"{each.value:,.3f}",
            f"{each.bar:,.3f}",
            f"{each.ours:,.2f}",
            "" if each.floor is None else f"{each.floor:,.2f}",
            each.unit,
            "[green]yes[/]" if each.holds else "[red]no[/]",
        )
    Console().print(shown)
