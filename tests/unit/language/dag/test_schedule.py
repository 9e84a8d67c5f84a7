"""Schedules have five or six fields in their bounds, or are a rate."""

from __future__ import annotations

import pytest

from noetl.language.dag.times import schedule_problem


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/10 0-23/2 1,15 jan-mar MON-FRI",
        "0 0 12 * * 7",
        "59 23 31 12 0",
        "@daily",
        " @Midnight ",
        "rate(1 day)",
        "rate( 5 minutes )",
    ],
)
def test_a_schedule_is_taken(text: str) -> None:
    assert schedule_problem(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("every day", "five or six fields"),
        ("* * * *", "five or six fields"),
        ("60 * * * *", "the minute must be"),
        ("* 24 * * *", "the hour must be"),
        ("* * 0 * *", "the day of the month must be"),
        ("* * * 13 *", "the month must be"),
        ("* * * * fry", "the day of the week must be"),
        ("60 * * * * *", "the second must be"),
        ("5-1 * * * *", "the minute must be"),
        ("*/0 * * * *", "the minute must be"),
        ("1,, * * * *", "the minute must be"),
        ("@reboot", "@reboot names no time: a schedule does not know when a machine starts"),
        ("@every 5m", "rate(5 minutes)"),
        ("@daily 5", "@daily 5 stands for no time; @hourly, @daily, "),
        ("@fortnightly", "@midnight"),
        ("rate(0 days)", "at least 1"),
        ("rate(1 moon)", "five or six fields"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, said: str) -> None:
    assert said in str(schedule_problem(text))
