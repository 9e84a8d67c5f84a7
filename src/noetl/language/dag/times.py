"""Times and schedules as people write them: `30s` becomes seconds; a wrong schedule or time zone is explained."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_RATE: Final = re.compile(r"rate\(\s*([0-9]{1,6})\s+(second|minute|hour|day|week)s?\s*\)")
_PART: Final = re.compile(r"(?:\*|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?")
_DAYS_OF: Final = {"second": 1 / 86_400, "minute": 1 / 1_440, "hour": 1 / 24, "day": 1, "week": 7}
_LONGEST_DAYS: Final = 1_830
"""Five years, so that a thousand moments to come are all before the year 9999."""
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)

_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def cron_fields(text: str) -> str:
    """Return the cron fields that a name such as `@daily` stands for; fields stay what they are."""
    return _NAMED.get(text.strip().lower(), text)


def schedule_problem(text: str) -> str | None:
    """Say what is wrong with a schedule: five or six cron fields (seconds first if six), `@daily`, or `rate(5 minutes)`."""
    rate = _RATE.fullmatch(text.strip())
    if rate is not None:
        days = int(rate[1]) * _DAYS_OF[rate[2]]
        return None if 0 < days <= _LONGEST_DAYS else f"a rate must be at least 1, and at most {_LONGEST_DAYS} days"
    if text.strip().startswith("@"):
        return _name_problem(text.strip().lower())
    fields = text.split()
    if len(fields) not in (5, 6):
        return "a schedule has five or six fields, such as `10 * * * *`, or is rate(1 day) or @daily"
    for field, (name, least, most, words) in zip(fields, _FIELDS[-len(fields) :], strict=True):
        for part in field.split(","):
            if not _is_part(part, least, most, words):
                return f"the {name} must be *, or numbers from {least} to {most}, such as 1-5 or */10"
    try:
        next(CronSim(text, _SOME_DAY))
    except (CronSimError, StopIteration):
        return f"{text!r} is never due"
    return None


def _name_problem(name: str) -> str | None:
    if name in _NAMED:
        return None
    if name == "@reboot":
        return (
            "@reboot names no time: a schedule does not know when a machine starts, and its server may be many machines"
        )
    if name.startswith("@every"):
        return "@every is written as a rate, such as rate(5 minutes)"
    return f"{name} stands for no time; {', '.join(_NAMED)} do"


def zone_problem(zone: str, schedule: str | None = None) -> str | None:
    """Say what is wrong with a time zone, or with giving one to this schedule."""
    if not _is_zone(zone):
        return f"{zone!r} is no time zone such as Europe/Berlin"
    if zone != "UTC" and schedule is not None and _RATE.fullmatch(schedule.strip()) is not None:
        return "a rate is counted in UTC: leave the time zone out, or write cron fields"
    return None


@lru_cache(1024)
def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _is_part(part: str, least: int, most: int, words: tuple[str, ...]) -> bool:
    match = _PART.fullmatch(part)
    if match is None or match[3] == "0":
        return False
    first, last = (_number(end, words) if end else None for end in (match[1], match[2]))
    if match[1] and (first is None or not least <= first <= most):
        return False
    return not match[2] or (last is not None and first is not None and first <= last <= most)


def _number(word: str, words: tuple[str, ...]) -> int | None:
    if word.isdecimal():
        return int(word)
    # Months are counted from 1 and days of the week from 0.
    low = word.lower()
    return words.index(low) + (1 if words is _MONTHS else 0) if low in words else None


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str) -> float:
    """Return a time in seconds; a bare number is seconds already, and `never` has no end."""
    if text == "never":
        return math.inf
    for unit, seconds in _UNITS.items():
        number = text.removesuffix(unit)
        if number != text and number[-1:].isdecimal():
            return float(number) * seconds
    return float(text)
