"""Ranges of partitions: half-open, in UTC, spelled the way they were asked for."""

from __future__ import annotations

import time
from typing import Any

import pytest

from noetl.errors import InputError
from noetl.pipelines.plan.partition_ranges import Selection, candidates, chosen, grid, keys_of
from noetl.pipelines.plan.wanted_values import InputOf, JobView


def asked(start: str, end: str, step: str | None = None, **fixed: str) -> Selection:
    return Selection(column="day", start=start, end=end, step=step, fixed=fixed)


@pytest.mark.parametrize(
    ("start", "end", "step", "values"),
    [
        ("2026-01-30", "2026-02-02", None, ["2026-01-30", "2026-01-31", "2026-02-01"]),
        ("2024-02-28", "2024-03-01", "1d", ["2024-02-28", "2024-02-29"]),
        ("2026-01-01", "2026-01-20", "7d", ["2026-01-01", "2026-01-08", "2026-01-15"]),
        ("2026-01-01", "2026-01-02", "8h", ["2026-01-01T00", "2026-01-01T08", "2026-01-01T16"]),
        ("2026-01-01T22", "2026-01-02T01", None, ["2026-01-01T22", "2026-01-01T23", "2026-01-02T00"]),
        ("2026-01-01 23:00:00", "2026-01-02 01:00:00", "1h", ["2026-01-01 23:00:00", "2026-01-02 00:00:00"]),
        ("2026-01-01T00:00Z", "2026-01-01T01:00Z", "30m", ["2026-01-01T00:00Z", "2026-01-01T00:30Z"]),
        ("8", "12", None, ["8", "9", "10", "11"]),
        ("-5", "250", "100", ["-5", "95", "195"]),
    ],
)
def test_a_range_has_its_lower_bound_and_not_its_upper(
    start: str, end: str, step: str | None, values: list[str]
) -> None:
    assert grid(asked(start, end, step)) == values


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01"])
def test_every_day_has_twenty_four_hours(day: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York" if day[5:7] in ("08", "11") else "Europe/Zurich")
    time.tzset()
    try:
        hours = grid(asked(f"{day}T00", f"{day[:8]}{int(day[8:]) + 1:02}T00"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert hours == [f"{day}T{hour:02}" for hour in range(24)]


@pytest.mark.parametrize(
    ("start", "end", "step", "told"),
    [
        ("2026-01-02", "2026-01-02", None, "nothing from"),
        ("9", "8", None, "nothing from"),
        ("2026-02-30", "2026-03-01", None, "is no range"),
        ("a", "b", None, "no number and no time"),
        ("1", "9", "1d", "no step between whole numbers"),
        ("2026-01-01", "2026-01-09", "5", "no step between times"),
        ("1", "9", "0", "no step"),
        ("0", "1000001", None, "1,000,001 partitions"),
    ],
)
def test_what_is_no_range_is_refused(start: str, end: str, step: str | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        grid(asked(start, end, step))


def test_partitions_that_exist_are_chosen_by_value_not_by_text() -> None:
    there = [f"day={value}" for value in ("9", "10", "11", "100", "x", "__null__")]
    assert chosen(asked("9", "11"), there) == ["day=9", "day=10"]
    days = [
        "day=2026-01-31/region=eu",
        "day=2026-02-01/region=us",
        "day=2026-02-01/region=eu",
        "day=2026-03-01/region=eu",
    ]
    assert chosen(asked("2026-01-01", "2026-03-01", region="eu"), days) == [days[0], days[2]]
    hours = ["day=2026-01-01%2001%3A00%3A00", "day=2026-01-01T02", "day=2026-13-01T00"]
    assert chosen(asked("2026-01-01", "2026-01-02T00"), hours) == hours[:2]
    assert chosen(asked("a", "c"), ["day=b", "day=c", "day=a"]) == ["day=a", "day=b"]


def test_a_source_needs_every_column() -> None:
    assert keys_of(asked("1", "3", region="e/u"), ("region", "day")) == ["region=e%2Fu/day=1", "region=e%2Fu/day=2"]
    with pytest.raises(InputError, match="which region"):
        keys_of(asked("1", "3"), ("region", "day"))


def _job(wait: Any = "any", **inputs: tuple[str, ...]) -> JobView:
    return JobView(
        generation="g",
        job_hash="h",
        inputs=tuple(InputOf(alias=name, dataset_uuid=name, partition_by=columns) for name, columns in inputs.items()),
        partition_by=("day",),
        wait=wait,
        strategy="PerPartition",
    )


def test_what_inputs_have_decides_what_can_be_built() -> None:
    parts = {"a": ["day=1/hour=0", "day=1/hour=1", "day=2/hour=0"], "b": ["day=2", "day=3"], "c": ["all"]}
    columns = {"a": ("day", "hour"), "b": ("day",), "c": ()}
    assert candidates(_job(**columns), parts) == {"day=1", "day=2", "day=3"}
    assert candidates(_job("all", **columns), parts) == {"day=2"}
    assert candidates(_job(c=()), parts) == set()


def test_a_hundred_thousand_partitions_are_named_at_once() -> None:
    began = time.perf_counter()
    assert len(keys_of(asked("2000-01-01T00", "2011-05-29T16"), ("day",))) == 100_000
    assert time.perf_counter() - began < 20
