"""When schedules are due: zones, daylight saving both ways, rates on a grid that everybody shares."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.services.schedule.cron import COUNT_LIMIT, Cron, expression_problem, timetable


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def coming(expression: str, zone: str, after: str, count: int) -> list[str]:
    """Return the next moments, in UTC, shortly."""
    moment, found = at(after), []
    for _ in range(count):
        moment = timetable(expression, zone).after(moment)
        found.append(f"{moment:%m-%d %H:%M}" + (f":{moment:%S}" if moment.second else ""))
    return found


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("0 6 * * *", "Europe/Berlin", "2026-01-01", ["01-01 05:00", "01-02 05:00"]),
        ("0 6 * * *", "Europe/Berlin", "2026-07-01", ["07-01 04:00", "07-02 04:00"]),
        ("0 6 * * 1-5", "America/New_York", "2026-01-02T20:00", ["01-05 11:00", "01-06 11:00"]),
        ("*/20 * * * * *", "UTC", "2026-01-01", ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01"]),
        ("0 0 29 2 *", "Asia/Tokyo", "2026-01-01", ["02-28 15:00"]),
        ("30 2 1,15 * *", "UTC", "2026-01-01", ["01-01 02:30", "01-15 02:30", "02-01 02:30"]),
        ("0 0 * * 7", "UTC", "2026-01-01", ["01-04 00:00", "01-11 00:00"]),
        ("@hourly", "UTC", "2026-01-01", ["01-01 01:00", "01-01 02:00"]),
        ("@daily", "Europe/Berlin", "2026-01-01", ["01-01 23:00", "01-02 23:00"]),
        ("@midnight", "UTC", "2026-01-01", ["01-02 00:00"]),
        ("@weekly", "UTC", "2026-01-01", ["01-04 00:00", "01-11 00:00"]),
        ("@monthly", "UTC", "2026-01-02", ["02-01 00:00"]),
        ("@yearly", "UTC", "2026-01-02", ["01-01 00:00"]),
        ("@annually", "UTC", "2026-01-02", ["01-01 00:00"]),
    ],
)
def test_a_cron_expression_is_read_in_its_zone(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert coming(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize("seconds", ["", "0 "])
def test_a_time_that_the_clock_skips_runs_at_the_end_of_the_gap(seconds: str) -> None:
    """INV-63."""
    # Berlin, 2026-03-29: 02:00 CET (01:00 UTC) becomes 03:00 CEST.
    found = coming(f"{seconds}30 2 * * *", "Europe/Berlin", "2026-03-27T12:00", 3)
    assert found == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]
    assert coming(f"{seconds}0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 3) == [
        "03-29 01:00", "03-30 00:00", "03-30 00:30"
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", ["", "0 "])
def test_a_time_that_the_clock_repeats_runs_once(seconds: str) -> None:
    """INV-63."""
    # Berlin, 2026-10-25: 03:00 CEST (01:00 UTC) becomes 02:00 CET.
    found = coming(f"{seconds}30 2 * * *", "Europe/Berlin", "2026-10-23T12:00", 3)
    assert found == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_what_goes_by_the_time_that_passes_runs_in_the_repeated_hour_and_not_in_the_gap() -> None:
    """INV-63."""
    autumn = coming("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:40", 6)
    assert autumn == ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00", "10-25 02:30"]
    spring = coming("0 * * * *", "Europe/Berlin", "2026-03-28T23:30", 3)
    assert spring == ["03-29 00:00", "03-29 01:00", "03-29 02:00"]
    in_gap = coming("*/15 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 1)
    assert in_gap == ["03-30 00:00"], "the hour from two to three does not pass on that day"


def test_a_rate_is_a_grid_in_utc() -> None:
    assert coming("rate(5 minutes)", "UTC", "2026-01-01T00:03:01", 2) == ["01-01 00:05", "01-01 00:10"]
    assert timetable("rate(1 week)").latest(at("2026-05-15T12:00")).strftime("%a %H:%M") == "Mon 00:00"  # type: ignore[union-attr]
    assert timetable("rate(7 hours)").count(at("2026-01-01"), at("2026-01-02")) == (4, True)


def test_more_moments_than_are_worth_counting_are_not_counted() -> None:
    assert timetable("* * * * * *").count(at("2026-01-01"), at("2026-02-01")) == (COUNT_LIMIT, False)


@pytest.mark.parametrize(
    ("expression", "zone", "said"),
    [
        ("0 0 30 2 *", "UTC", "never due"),
        ("0 6 * * *", "Europe/Atlantis", "no time zone"),
        ("rate(1 day)", "Europe/Berlin", "counted in UTC"),
        ("every day", "UTC", "five or six fields"),
    ],
)
def test_what_can_never_be_due_is_refused(expression: str, zone: str, said: str) -> None:
    assert said in str(expression_problem(expression, zone))


fields = st.tuples(
    st.sampled_from(["0", "30", "*/7", "5-50/15", "59"]),
    st.sampled_from(["*", "2", "2-3", "*/5", "0,23"]),
    st.sampled_from(["*", "1", "29", "*/10"]),
    st.sampled_from(["*", "3", "10-11"]),
    st.sampled_from(["*", "0", "1-5"]),
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
moments = st.integers(0, 4 * 366 * 86_400_000).map(lambda ms: at("2024-01-01") + timedelta(milliseconds=ms))


@given(parts=fields, zone=zones, moment=moments)
def test_moments_come_one_after_another_and_are_found_again_from_behind(
    parts: tuple[str, ...], zone: str, moment: datetime
) -> None:
    """INV-63."""
    times = timetable(" ".join(parts), zone)
    found = [times.after(moment)]
    for _ in range(3):
        found.append(times.after(found[-1]))
    assert moment < found[0]
    assert all(one < other for one, other in pairwise(found))
    assert [times.latest(one) for one in found] == found
    assert times.latest(found[1] - timedelta(microseconds=1)) == found[0]
    assert times.count(found[0], found[-1]) == (3, True)
    minutes = parts[0]
    for one in found:
        local = one.astimezone(ZoneInfo(zone))
        gap = local.replace(tzinfo=None) - (one - timedelta(minutes=1)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if minutes in ("0", "30", "59") and gap == timedelta(minutes=1):
            assert local.minute == int(minutes), "only the end of a gap may show another time"


@given(st.sampled_from(["0 6 * * *", "*/7 * * * *", "30 2 * * *", "0 0 29 2 *", "15 */5 * 1-3 1"]),
       st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]), st.integers(0, 3_000_000))  # fmt: skip
def test_the_latest_moment_is_the_last_one_that_comes(expression: str, zone: str, minutes: int) -> None:
    now = at("2024-03-01") + timedelta(minutes=minutes, seconds=minutes % 60)
    table = timetable(expression, zone)
    latest = table.latest(now)
    assert latest is not None
    assert latest <= now < table.after(latest)
    assert table.after(latest - timedelta(seconds=1)) == latest
    assert table.latest(latest) == latest
    assert table.latest(latest - timedelta(microseconds=1)) != latest


def test_the_latest_moment_is_not_looked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-187: in a month that is left out, the last moment is one of millions."""
    taken = 0
    after = Cron.after

    def counted(self: Cron, moment: datetime) -> datetime:
        nonlocal taken
        taken += 1
        return after(self, moment)

    monkeypatch.setattr(Cron, "after", counted)
    assert timetable("* * * 2-11 *").latest(at("2026-01-31T12:00")) == at("2025-11-30T23:59")
    assert 0 < taken < 50
