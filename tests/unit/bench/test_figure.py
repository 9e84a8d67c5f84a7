"""Benchmarks print one form, and the bar decides whether a figure holds."""

from __future__ import annotations

import json

from bench.figure import Figure, alternating


def test_a_figure_is_one_line_of_json_in_the_agreed_form() -> None:
    line = Figure.ratio("append.batch100", 70.0, 100.0, "events/s", 0.7, "more").line()
    assert json.loads(line) == {
        "figure": "append.batch100",
        "value": 0.7,
        "ours": 70.0,
        "floor": 100.0,
        "unit": "events/s",
        "bar": 0.7,
        "holds": True,
    }
    assert "\n" not in line


def test_a_ratio_below_a_lower_bar_does_not_hold() -> None:
    assert not Figure.ratio("append.batch100", 69.0, 100.0, "events/s", 0.7, "more").holds


def test_a_number_above_an_upper_bar_does_not_hold() -> None:
    assert Figure.plain("start.help", 0.29, "s", 0.3, "less").holds
    assert not Figure.plain("start.help", 0.31, "s", 0.3, "less").holds


async def test_rounds_alternate_and_medians_are_compared() -> None:
    order: list[str] = []

    async def ours(number: int) -> float:
        order.append("ours")
        return [3.0, 100.0, 1.0][number]

    async def floor(number: int) -> float:
        order.append("floor")
        return [5.0, 4.0, 6.0][number]

    assert await alternating(ours, floor, 3) == (3.0, 5.0)
    assert order == ["floor", "ours", "ours", "floor", "floor", "ours"]
