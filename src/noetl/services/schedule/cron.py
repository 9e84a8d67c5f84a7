"""When a schedule is due: an expression and a time zone go in, moments in UTC come out. Pure: it reads no clock.

A cron expression is read in its zone. Where its minute and its hour are fixed, a moment that the clock skips in spring is
the first one after the gap, and one that the clock repeats in autumn is its first occurrence alone. Where minute or hour
begin with `*` it goes by the time that passes: nothing is planned in the gap, and the repeated hour is planned twice. A
rate is counted in UTC from the epoch, weeks from a Monday.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim

from noetl.errors import InputError
from noetl.language.dag.times import cron_fields, schedule_problem, zone_problem

COUNT_LIMIT: Final = 10_000
"""More moments than this are not counted one by one."""

_RATE: Final = re.compile(r"rate\(\s*([0-9]+)\s+(second|minute|hour|day|week)s?\s*\)")
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)
_WIDEST_SHIFT: Final = timedelta(hours=26)
"""No clock was ever set by more than a day, which is how far a moment may move between its zone's days."""
_LOOKS_BACK: Final = timedelta(days=3_650)
_SECOND: Final = timedelta(seconds=1)


class Timetable(Protocol):
    """The moments of a schedule."""

    def after(self, moment: datetime) -> datetime:
        """Return the first moment after this one."""
        ...

    def latest(self, moment: datetime) -> datetime | None:
        """Return the last moment up to and with this one, if there is any within ten years."""
        ...

    def count(self, first: datetime, before: datetime) -> tuple[int, bool]:
        """Count moments from the first up to but without the end, and tell whether these are all."""
        ...


class Rate:
    """Every so many seconds, on a grid that everybody shares."""

    def __init__(self, period: timedelta, origin: datetime = _EPOCH) -> None:
        self._period = period
        self._origin = origin

    def after(self, moment: datetime) -> datetime:
        """Return the first moment after this one."""
        return self.latest(moment) + self._period

    def latest(self, moment: datetime) -> datetime:
        """Return the last moment up to and with this one."""
        return self._origin + (moment - self._origin) // self._period * self._period

    def count(self, first: datetime, before: datetime) -> tuple[int, bool]:
        """Count moments from the first up to but without the end."""
        return max(0, -((first - before) // self._period)), True


class Cron:
    """Five or six fields, read in a time zone."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone
        # Read once: to read the fields takes longer than to find the next moment.
        self._read = CronSim(expression, _EPOCH.replace(tzinfo=None))
        fields = expression.split()[-5:]
        self._fixed = zone is not UTC and not fields[0].startswith("*") and not fields[1].startswith("*")

    def after(self, moment: datetime) -> datetime:
        """Return the first moment after this one."""
        return next(self._moments(moment))

    def latest(self, moment: datetime) -> datetime | None:
        """Return the last moment up to and with this one, if there is any within ten years."""
        # Halved, not counted: between two moments there may be months, and before them one in each minute.
        found, end = self.after(moment - _LOOKS_BACK), moment
        if found > moment:
            return None
        while end - found >= _SECOND:
            middle = found + (end - found) / 2
            later = self.after(middle)
            found, end = (later, end) if later <= moment else (found, middle)
        return found

    def count(self, first: datetime, before: datetime) -> tuple[int, bool]:
        """Count moments from the first up to but without the end, and tell whether these are all."""
        found = 0
        for _ in takewhile(lambda one: one < before, self._moments(first - timedelta(microseconds=1))):
            found += 1
            if found == COUNT_LIMIT:
                return found, False
        return found, True

    def _moments(self, after: datetime) -> Iterator[datetime]:
        """Give the moments after one, each later than the one before."""
        last = after
        for moment in self._fixed_moments(after) if self._fixed else self._passing_moments(after):
            if moment > last:
                last = moment
                yield moment
        raise InputError(f"the schedule {self._expression!r} is never due")

    def _passing_moments(self, after: datetime) -> Iterator[datetime]:
        for moment in self._from(after.astimezone(self._zone)):
            yield moment.astimezone(UTC)

    def _fixed_moments(self, after: datetime) -> Iterator[datetime]:
        # Read on a wall without a zone; where the clock was set lately, from before that, so that it hides no moment.
        now, before = after.astimezone(self._zone), (after - _WIDEST_SHIFT).astimezone(self._zone)
        start = now if now.utcoffset() == before.utcoffset() else before
        for shown in self._from(start.replace(tzinfo=None)):
            yield _as_shown(shown, self._zone)

    def _from(self, start: datetime) -> Iterator[datetime]:
        found = copy(self._read)
        found.dt = start.replace(microsecond=0)
        return found


def _as_shown(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first moment at which a clock of the zone shows this time, or the end of the gap it falls into."""
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    # In a gap: with the offset of before it is too late by as much as lies between the gap's start and this time.
    start, end = moment - _WIDEST_SHIFT, moment
    offset = start.astimezone(zone).utcoffset()
    while end - start > timedelta(seconds=1):
        middle = start + (end - start) // 2
        start, end = (middle, end) if middle.astimezone(zone).utcoffset() == offset else (start, middle)
    return end.replace(microsecond=0)


@lru_cache(4096)
def timetable(expression: str, timezone: str = "UTC") -> Timetable:
    """Return the moments of a schedule that has no problems."""
    rate = _RATE.fullmatch(expression.strip())
    if rate is not None:
        period = timedelta(seconds=int(rate[1]) * _SECONDS[rate[2]])
        return Rate(period, _MONDAY if rate[2] == "week" else _EPOCH)
    return Cron(cron_fields(expression), UTC if timezone == "UTC" else ZoneInfo(timezone))


@lru_cache(65_536)
def next_after(expression: str, timezone: str, moment: datetime) -> datetime:
    """Return the first moment of a schedule after another; many schedules share their expressions, so it is remembered."""
    return timetable(expression, timezone).after(moment)


def expression_problem(expression: str, timezone: str = "UTC") -> str | None:
    """Say what is wrong with an expression and its zone."""
    return schedule_problem(expression) or zone_problem(timezone, expression)
