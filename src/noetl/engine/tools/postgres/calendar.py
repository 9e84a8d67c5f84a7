"""Numbers by which PostgreSQL counts days, moments, times and intervals go in; text comes out that it reads back unchanged.

Its calendar goes on where Python's ends, before the year 1 and after 9999, and knows infinities: none of these is lost.
"""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - the server counts from here, with and without a zone
_EPOCH_DAY = _EPOCH.toordinal()
_CYCLE_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats."""
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_FIRST, _LAST = ((day.toordinal() - _EPOCH_DAY) for day in (dt.date.min, dt.date.max))
_LEAST_32, _MOST_32, _LEAST_64, _MOST_64 = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
_INFINITE_DAYS = {_LEAST_32: "-infinity", _MOST_32: "infinity"}
_INFINITE_MOMENTS = {_LEAST_64: "-infinity", _MOST_64: "infinity"}
_INFINITE_INTERVALS = {
    (_LEAST_32, _LEAST_32, _LEAST_64): "-infinity",
    (_MOST_32, _MOST_32, _MOST_64): "infinity",
}


def day(value: tuple[int]) -> str:
    """Return days since 2000 as a date."""
    (days,) = value
    if _FIRST <= days <= _LAST:
        return dt.date.fromordinal(days + _EPOCH_DAY).isoformat()
    return _INFINITE_DAYS.get(days) or "".join(_date(days))


def moment(value: tuple[int]) -> str:
    """Return microseconds since 2000 as a date with a time."""
    return _moment(value[0], "")


def moment_in_utc(value: tuple[int]) -> str:
    """Return microseconds since 2000 in UTC as a date with a time and its zone."""
    return _moment(value[0], "+00:00")


def time(value: tuple[int]) -> str:
    """Return microseconds since midnight as a time; the server's day has an hour 24."""
    return _time(value[0])


def time_with_zone(value: tuple[int, int]) -> str:
    """Return microseconds since midnight, and seconds by which the zone is west of UTC, as a time with its zone."""
    micros, west = value
    hours, seconds = divmod(abs(west), 3600)
    minutes, seconds = divmod(seconds, 60)
    zone = f"{'-' if west > 0 else '+'}{hours:02d}:{minutes:02d}"
    return _time(micros) + zone + (f":{seconds:02d}" if seconds else "")


def interval(value: tuple[int, int, int]) -> str:
    """Return months, days and microseconds as an ISO 8601 duration."""
    if value in _INFINITE_INTERVALS:
        return _INFINITE_INTERVALS[value]
    months, days, micros = value
    years, months = _parts(months, 12)
    minutes, micros = _parts(micros, 60 * _SECOND)
    hours, minutes = _parts(minutes, 60)
    sign = "-" if micros < 0 else ""
    whole, fraction = divmod(abs(micros), _SECOND)
    seconds = f"{sign}{whole}" + (f".{fraction:06d}".rstrip("0") if fraction else "")
    dates = "".join(f"{amount}{unit}" for amount, unit in ((years, "Y"), (months, "M"), (days, "D")) if amount)
    times = "".join(f"{amount}{unit}" for amount, unit in ((hours, "H"), (minutes, "M")) if amount)
    times += f"{seconds}S" if micros else ""
    return f"P{dates}T{times}" if times else f"P{dates}" if dates else "PT0S"


def _moment(micros: int, zone: str) -> str:
    days, rest = divmod(micros, _DAY)
    if _FIRST <= days <= _LAST:
        return (_EPOCH + dt.timedelta(days, 0, rest)).isoformat() + zone
    if micros in _INFINITE_MOMENTS:
        return _INFINITE_MOMENTS[micros]
    date, era = _date(days)
    return f"{date}T{_time(rest)}{zone}{era}"


def _date(days: int) -> tuple[str, str]:
    """Return a day of any year, and its era where that has to be said."""
    cycles, rest = divmod(days + _EPOCH_DAY - 1, _CYCLE_DAYS)
    alike = dt.date.fromordinal(rest + 1)
    year = alike.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04d}-{alike.month:02d}-{alike.day:02d}", "" if year > 0 else " BC"


def _time(micros: int) -> str:
    seconds, fraction = divmod(micros, _SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}" + (f".{fraction:06d}" if fraction else "")


def _parts(amount: int, size: int) -> tuple[int, int]:
    """Divide towards zero, so that both parts keep the sign."""
    whole = abs(amount) // size
    return (whole, amount - whole * size) if amount >= 0 else (-whole, amount + whole * size)
